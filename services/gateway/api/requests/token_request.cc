#include "services/gateway/api/requests/token_request.h"

#include <utility>

#include "common/status.h"
#include "services/gateway/api/answers/json_text.h"
#include "services/gateway/api/fields/field_table.h"
#include "services/gateway/api/fields/json_body.h"

namespace tandem::gateway {
namespace {

absl::StatusOr<RequestDraft> ParseOnePrompt(std::string_view body, Endpoint endpoint,
                                            const char* field) {
  TANDEM_ASSIGN_OR_RETURN(const Json json, ParseJsonBody(body));
  RequestDraft draft;
  draft.body = body;
  TANDEM_RETURN_IF_ERROR(ReadFields(json, endpoint, "", &draft));
  draft.body = {};
  if (draft.prompts.empty() && !draft.chat.messages().empty()) {
    draft.prompts.emplace_back(std::exchange(draft.chat, {}));
  }
  if (draft.prompts.empty()) return InvalidArgument(std::string(field) + ": got nothing");
  return draft;
}

}  // namespace

absl::StatusOr<TokenCall<v1::TokenizeRequest>> ParseTokenize(std::string_view body) {
  TANDEM_ASSIGN_OR_RETURN(RequestDraft draft, ParseOnePrompt(body, kTokenize, "prompt"));
  TokenCall<v1::TokenizeRequest> call;
  if (auto* chat = std::get_if<v1::Chat>(&draft.prompts[0])) {
    call.request.mutable_chat()->Swap(chat);
  } else {
    call.request.set_text(std::get<std::string>(std::move(draft.prompts[0])));
  }
  if (draft.shared.has_add_special_tokens()) {
    call.request.set_add_special_tokens(draft.shared.add_special_tokens());
  }
  call.model = draft.shared.model();
  return call;
}

absl::StatusOr<TokenCall<v1::DetokenizeRequest>> ParseDetokenize(std::string_view body) {
  TANDEM_ASSIGN_OR_RETURN(RequestDraft draft, ParseOnePrompt(body, kDetokenize, "tokens"));
  TokenCall<v1::DetokenizeRequest> call;
  call.request.mutable_ids()->Swap(std::get<v1::TokenIds>(draft.prompts[0]).mutable_ids());
  // A field that was not given is false, which is vLLM's default and not the router's.
  call.request.set_skip_special_tokens(draft.shared.sampling_params().skip_special_tokens());
  call.model = draft.shared.model();
  return call;
}

std::string TokenizeBody(const v1::TokenizeResponse& response, int32_t max_model_len) {
  std::string body = "{\"count\":" + std::to_string(response.ids_size()) +
                     ",\"max_model_len\":" + std::to_string(max_model_len) + ",\"tokens\":[";
  for (int i = 0; i < response.ids_size(); ++i) {
    if (i > 0) body += ',';
    body += std::to_string(response.ids(i));
  }
  return body + "],\"token_strs\":null}";
}

std::string DetokenizeBody(const v1::DetokenizeResponse& response) {
  return "{\"prompt\":" + JsonText(response.text()) + "}";
}

}  // namespace tandem::gateway
