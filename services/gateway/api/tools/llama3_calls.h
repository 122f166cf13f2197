// Calls as Llama 3 writes them: the whole output is {"name": …, "parameters": {…}}.
#ifndef TANDEM_SERVICES_GATEWAY_API_TOOLS_LLAMA3_CALLS_H_
#define TANDEM_SERVICES_GATEWAY_API_TOOLS_LLAMA3_CALLS_H_

#include <optional>
#include <string>
#include <string_view>

#include "services/gateway/api/tools/call_sink.h"
#include "services/gateway/api/tools/tool_call_parser.h"

namespace tandem::gateway {

class Llama3Calls final : public ToolCallParser {
 public:
  explicit Llama3Calls(const ToolNames* names) : names_(names) {}
  void Push(std::string_view text, ToolOutput* output) override;
  void Finish(ToolOutput* output) override;
  bool has_complete_calls() const override { return sink_.has_complete_calls(); }

 private:
  static constexpr std::string_view kTag = "<|python_tag|>";

  // All of the text is content from now on. `before` was taken and not written.
  void BecomeText(const std::string& before, ToolOutput* output);
  // Takes some of the held text. Returns false if more text is needed.
  bool Step(ToolOutput* output);
  // The same between calls.
  bool StepBetween(ToolOutput* output);

  const ToolNames* names_;
  CallSink sink_;
  std::string held_;
  std::string opening_;  // what came before the first object
  std::optional<ObjectCall> call_;
  bool is_text_ = false;
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_API_TOOLS_LLAMA3_CALLS_H_
