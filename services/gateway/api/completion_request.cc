#include "services/gateway/api/completion_request.h"

#include "common/status.h"
#include "services/gateway/api/field_table.h"
#include "services/gateway/api/json_body.h"

namespace tandem::gateway {

absl::StatusOr<CompletionRequest> CompletionRequest::Parse(std::string_view body) {
  TANDEM_ASSIGN_OR_RETURN(const Json json, ParseJsonBody(body));
  RequestDraft draft;
  TANDEM_RETURN_IF_ERROR(ReadFields(json, kCompletions, "", &draft));
  if (draft.prompts.empty()) {
    return InvalidArgument("prompt: got nothing, allowed: a string, token ids, or a list of them");
  }
  if (draft.answer.echo && draft.answer.logprobs) {
    return InvalidArgument("echo: got true with logprobs, allowed: one of the two. " +
                           std::string(FindField("prompt_logprobs", kCompletions)->note));
  }
  if (draft.answer.has_stream_options && !draft.answer.stream) {
    return InvalidArgument(
        "stream_options: got an object without stream, allowed: only with "
        "stream");
  }
  v1::SamplingParams* sampling = draft.shared.mutable_sampling_params();
  if (!sampling->has_max_tokens()) sampling->set_max_tokens(kDefaultMaxTokens);
  return CompletionRequest(std::move(draft));
}

v1::GenerateRequest CompletionRequest::Take(size_t choice, std::string request_id) {
  v1::GenerateRequest request = draft_.shared;
  request.set_request_id(std::move(request_id));
  Prompt prompt = std::exchange(draft_.prompts[choice], Prompt());
  if (auto* text = std::get_if<std::string>(&prompt)) {
    request.set_prompt(std::move(*text));
  } else {
    request.mutable_prompt_token_ids()->Swap(&std::get<v1::TokenIds>(prompt));
  }
  return request;
}

}  // namespace tandem::gateway
