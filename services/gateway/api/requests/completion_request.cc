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
  const auto& stops = draft.shared.sampling_params().stop_token_ids();
  draft.answer.stop_token_ids.assign(stops.begin(), stops.end());
  if (draft.answer.has_stream_options && !draft.answer.stream) {
    return InvalidArgument(
        "stream_options: got an object without stream, allowed: only with stream");
  }
  return draft;
}

// Adds what the template gets beside the messages.
void FinishChat(RequestDraft* draft) {
  v1::Chat& chat = draft->chat;
  if (!draft->uses_tools) {
    chat.clear_tools_json();
    draft->answer.tool_names.clear();
  }
  if (!draft->reasoning_effort.has_value() || draft->has_effort_variable) return;
  std::string kwargs = chat.template_kwargs_json();
  const bool is_first = kwargs.empty() || kwargs == "{}";
  kwargs = is_first ? "{" : kwargs.substr(0, kwargs.size() - 1) + ",";
  kwargs += "\"reasoning_effort\":" + Json(*draft->reasoning_effort).dump() + "}";
  chat.set_template_kwargs_json(kwargs);
}

absl::Status CheckTopLogprobs(const RequestDraft& draft) {
  if (draft.top_logprobs.value_or(0) == 0 || draft.answer.logprobs) return absl::OkStatus();
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
  const int32_t limit =
      draft.max_tokens.value_or(draft.max_completion_tokens.value_or(kDefaultMaxTokens));
  draft.shared.mutable_sampling_params()->set_max_tokens(limit);
  AskForPrompt(&draft);
  if (limit == 0 && !draft.shared.sampling_params().has_prompt_logprobs()) {
    return InvalidArgument("max_tokens: got 0, allowed: 1 or more; with echo also 0");
  }
  return CompletionRequest(std::move(draft));
}

absl::StatusOr<CompletionRequest> CompletionRequest::ParseChat(std::string_view body) {
  TANDEM_ASSIGN_OR_RETURN(RequestDraft draft, ReadDraft(body, kChat));
  if (draft.chat.messages().empty()) {
    return InvalidArgument("messages: got nothing, allowed: a list of one message or more");
  }
  TANDEM_RETURN_IF_ERROR(CheckTopLogprobs(draft));
  FinishChat(&draft);
  // The older name counts only by itself.
  const std::optional<int32_t> limit =
      draft.max_completion_tokens.has_value() ? draft.max_completion_tokens : draft.max_tokens;
  if (limit.has_value()) draft.shared.mutable_sampling_params()->set_max_tokens(*limit);
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
