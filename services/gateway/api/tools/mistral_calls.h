// Calls as Mistral's models write them, after the mark [TOOL_CALLS].
#ifndef TANDEM_SERVICES_GATEWAY_API_TOOLS_MISTRAL_CALLS_H_
#define TANDEM_SERVICES_GATEWAY_API_TOOLS_MISTRAL_CALLS_H_

#include <optional>
#include <string>
#include <string_view>

#include "services/gateway/api/tools/call_sink.h"
#include "services/gateway/api/tools/tool_call_parser.h"

namespace tandem::gateway {

class MistralCalls final : public ToolCallParser {
 public:
  explicit MistralCalls(const ToolNames* names) : names_(names) {}
  void Push(std::string_view text, ToolOutput* output) override;
  void Finish(ToolOutput* output) override;
  bool has_complete_calls() const override { return sink_.has_complete_calls(); }

 private:
  // kMark: after the mark. kList: between the objects of a list. The others: in an object, in
  // NAME[ARGS], or in the arguments after it.
  enum class At { kText, kMark, kList, kObject, kName, kArguments };
  static constexpr std::string_view kMark = "[TOOL_CALLS]";

  // Take some of the held text. They return false if more text is needed.
  bool Step(ToolOutput* output);
  bool StepText(ToolOutput* output);
  bool StepBetween(ToolOutput* output);
  bool StepObject(ToolOutput* output);
  bool StepName(ToolOutput* output);
  bool StepArguments(ToolOutput* output);
  // Takes bytes that belong to the opening of a call.
  void Skip(size_t size);
  // What came since the mark, with `more`, is no call.
  void BecomeText(const std::string& more, ToolOutput* output);

  const ToolNames* names_;
  CallSink sink_;
  TagFinder finder_{kMark};
  At at_ = At::kText;
  std::string opening_;  // since the mark, until a call has begun
  std::string held_;
  bool is_list_ = false;        // the object is in a list
  bool list_has_call_ = false;  // so the list is one of calls
  std::optional<ObjectCall> call_;
  JsonValueEnd end_;
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_API_TOOLS_MISTRAL_CALLS_H_
