#include "services/gateway/api/answers/choice_writer.h"

#include <algorithm>

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

std::string StopReasonText(const v1::Completion& completion,
                           const std::vector<int32_t>& stop_token_ids) {
  switch (completion.stop_reason_case()) {
    case v1::Completion::kStopString:
      return JsonText(completion.stop_string());
    case v1::Completion::kStopTokenId: {
      // The end of the text is no stop that the client asked for.
      const bool is_asked_for = std::find(stop_token_ids.begin(), stop_token_ids.end(),
                                          completion.stop_token_id()) != stop_token_ids.end();
      return is_asked_for ? std::to_string(completion.stop_token_id()) : "null";
    }
    default:
      return "null";
  }
}

}  // namespace tandem::gateway
