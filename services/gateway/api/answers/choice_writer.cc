#include "services/gateway/api/answers/choice_writer.h"

#include "services/gateway/api/answers/json_text.h"

namespace tandem::gateway {

std::string FinishReasonText(const v1::Completion& completion) {
  switch (completion.finish_reason()) {
    case v1::FINISH_REASON_STOP:
      return "\"stop\"";
    case v1::FINISH_REASON_LENGTH:
      return "\"length\"";
    default:
      return "null";
  }
}

std::string StopReasonText(const v1::Completion& completion) {
  switch (completion.stop_reason_case()) {
    case v1::Completion::kStopString:
      return JsonText(completion.stop_string());
    case v1::Completion::kStopTokenId:
      return std::to_string(completion.stop_token_id());
    default:
      return "null";
  }
}

}  // namespace tandem::gateway
