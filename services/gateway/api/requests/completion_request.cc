#include "services/gateway/api/requests/completion_request.h"

#include "common/status.h"
#include "services/gateway/api/fields/field_table.h"
#include "services/gateway/api/fields/json_body.h"

namespace tandem::gateway {
namespace {

// Reads the fields that both endpoints have in common with each other.
absl::StatusOr<RequestDraft> ReadDraft(std::string_view body, Endpoint endpoint) {
  TANDEM_ASSIGN_OR_RETURN(const Json json, ParseJsonBody(body));
  RequestDraft draft;
  draft.body = body;
  TANDEM_RETURN_IF_ERROR(ReadFields(json, endpoint, "", &draft));
  draft.body = {};
  if (draft.answer.has_stream_options && !draft.answer.stream) {
    return InvalidArgument(
        "stream_options: got an object without stream, allowed: only with stream");
  }
  return draft;
}

// Adds what the template gets beside the messages.
absl::Status FinishChat(RequestDraft* draft) {
  v1::Chat& chat = draft->chat;
  if (!draft->uses_tools) chat.clear_tools_json();
  draft->answer.finds_calls = !chat.tools_json().empty();
  if (!draft->reasoning_effort.has_value()) return absl::OkStatus();
  Json kwargs = Json::object();
  if (!chat.template_kwargs_json().empty()) kwargs = Json::parse(chat.template_kwargs_json());
  if (!kwargs.contains("reasoning_effort")) kwargs["reasoning_effort"] = *draft->reasoning_effort;
  chat.set_template_kwargs_json(kwargs.dump());
  return absl::OkStatus();
}

absl::Status CheckTopLogprobs(const RequestDraft& draft) {
  if (!draft.top_logprobs.has_value() || draft.answer.logprobs) return absl::OkStatus();
  return InvalidArgument("top_logprobs: got " + std::to_string(*draft.top_logprobs) +
                         " without logprobs, allowed: only with logprobs true");
}

// A repeated prompt has log-probabilities as the output does. Only with them, a request may do
// without output.
void AskForPrompt(RequestDraft* draft) {
  v1::SamplingParams* const sampling = draft->shared.mutable_sampling_params();
  if (draft->answer.echo && (draft->answer.logprobs || sampling->max_tokens() == 0)) {
    sampling->set_prompt_logprobs(sampling->logprobs());
  }
}

}  // namespace

absl::StatusOr<CompletionRequest> CompletionRequest::Parse(std::string_view body) {
  TANDEM_ASSIGN_OR_RETURN(RequestDraft draft, ReadDraft(body, kCompletions));
  if (draft.prompts.empty()) {
    return InvalidArgument("prompt: got nothing, allowed: a string, token ids, or a list of them");
  }
  if (draft.prompts.size() * draft.answer.num_choices > kMaxChoices) {
    return InvalidArgument("n: got " + std::to_string(draft.answer.num_choices) + " with " +
                           std::to_string(draft.prompts.size()) + " prompts, allowed: at most " +
                           std::to_string(kMaxChoices) + " choices of all prompts together");
  }
  v1::SamplingParams* sampling = draft.shared.mutable_sampling_params();
  if (!sampling->has_max_tokens()) sampling->set_max_tokens(kDefaultMaxTokens);
  AskForPrompt(&draft);
  return CompletionRequest(std::move(draft));
}

absl::StatusOr<CompletionRequest> CompletionRequest::ParseChat(std::string_view body) {
  TANDEM_ASSIGN_OR_RETURN(RequestDraft draft, ReadDraft(body, kChat));
  if (draft.chat.messages().empty()) {
    return InvalidArgument("messages: got nothing, allowed: a list of one message or more");
  }
  TANDEM_RETURN_IF_ERROR(CheckTopLogprobs(draft));
  TANDEM_RETURN_IF_ERROR(FinishChat(&draft));
  draft.answer.is_chat = true;
  draft.prompts.emplace_back(std::exchange(draft.chat, {}));
  return CompletionRequest(std::move(draft));
}

v1::GenerateRequest CompletionRequest::Take(size_t prompt, std::string request_id) {
  v1::GenerateRequest request = draft_.shared;
  request.set_request_id(std::move(request_id));
  Prompt taken = std::exchange(draft_.prompts[prompt], Prompt());
  if (auto* text = std::get_if<std::string>(&taken)) {
    request.set_prompt(std::move(*text));
  } else if (auto* chat = std::get_if<v1::Chat>(&taken)) {
    request.mutable_chat()->Swap(chat);
  } else {
    request.mutable_prompt_token_ids()->Swap(&std::get<v1::TokenIds>(taken));
  }
  return request;
}

}  // namespace tandem::gateway
