// Calls as Hermes and Qwen write them: <tool_call>{"name": …, "arguments": {…}}</tool_call>.
#ifndef TANDEM_SERVICES_GATEWAY_API_TOOLS_HERMES_CALLS_H_
#define TANDEM_SERVICES_GATEWAY_API_TOOLS_HERMES_CALLS_H_

#include <optional>
#include <string>
#include <string_view>

#include "services/gateway/api/tools/call_sink.h"
#include "services/gateway/api/tools/tool_call_parser.h"

namespace tandem::gateway {

class HermesCalls final : public ToolCallParser {
 public:
  explicit HermesCalls(const ToolNames* names) : names_(names) {}
  void Push(std::string_view text, ToolOutput* output) override;
  void Finish(ToolOutput* output) override;
  bool has_complete_calls() const override { return sink_.has_complete_calls(); }

 private:
  static constexpr std::string_view kBegin = "<tool_call>";
  static constexpr std::string_view kEnd = "</tool_call>";

  // Takes some of the text, and returns the rest.
  std::string Step(const std::string& text, ToolOutput* output);
  // The same after the object.
  std::string StepAfter(const std::string& text);
  // What came before the object that is read.
  std::string Opening() const { return finder_.space() + std::string(kBegin); }

  const ToolNames* names_;
  CallSink sink_;
  TagFinder finder_{kBegin};
  std::optional<ObjectCall> call_;  // none: between calls
  std::string after_;               // what follows the object, until it is the end tag or is not
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_API_TOOLS_HERMES_CALLS_H_
