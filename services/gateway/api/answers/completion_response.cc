#include "services/gateway/api/answers/completion_response.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "services/gateway/api/answers/chat_choice.h"
#include "services/gateway/api/answers/json_text.h"
#include "services/gateway/api/answers/text_choice.h"

namespace tandem::gateway {

CompletionResponse::CompletionResponse(Header header, const AnswerOptions& options,
                                       size_t num_prompts)
    : header_(std::move(header)),
      options_(options),
      begin_(Begin()),
      choices_(num_prompts * options.num_choices) {
  for (size_t i = 0; i < choices_.size(); ++i) choices_[i].writer = MakeWriter(i, "");
}

std::unique_ptr<ChoiceWriter> CompletionResponse::MakeWriter(size_t index,
                                                             const std::string& echo) const {
  if (!options_.is_chat) {
    return std::make_unique<TextChoice>(index, options_.logprobs, options_.stop_token_ids, echo);
  }
  return std::make_unique<ChatChoice>(ChatChoice::Options{
      .index = index,
      .stream = options_.stream,
      .has_logprobs = options_.logprobs,
      .tool_call_format =
          options_.tool_names.empty() ? std::string_view() : header_.tool_call_format,
      .tool_names = &options_.tool_names,
      .one_call = options_.one_call,
      .answer_id = header_.id,
      .stop_token_ids = options_.stop_token_ids});
}

void CompletionResponse::SetEcho(size_t prompt, const std::string& text) {
  const size_t first = prompt * options_.num_choices;
  for (size_t i = first; i < first + options_.num_choices; ++i) {
    choices_[i].writer = MakeWriter(i, text);
  }
}

std::string CompletionResponse::Add(size_t prompt, const v1::GenerateResponse& message) {
  const auto of_prompt = static_cast<size_t>(message.index());
  if (of_prompt >= options_.num_choices) return "";  // the router numbers what it was asked for
  const size_t first = prompt * options_.num_choices;
  // The router sends it once for all choices.
  if (message.has_prompt_start() || message.prompt_logprobs_size() > 0) {
    for (size_t i = first; i < first + options_.num_choices; ++i) {
      choices_[i].writer->AddPrompt(message);
    }
  }
  Choice& choice = choices_[first + of_prompt];
  choice.writer->Add(message);
  if (message.has_completion() && !choice.is_complete) {
    choice.is_complete = true;
    ++num_complete_;
    usage_.Add(message.completion(), /*counts_prompt=*/of_prompt == 0);
    if (!options_.stream) choice.json = choice.writer->Take();
  }
  if (!options_.stream || !choice.writer->has_news()) return "";
  // Without an event for the usage, warnings stand beside the end of their choice.
  const std::string members =
      options_.include_usage ? ",\"usage\":null" : WarningsMember(message.completion().warnings());
  return absl::StrCat("data: ", begin_, choice.writer->Take(), "]", members, "}\n\n");
}

std::string CompletionResponse::Begin() const {
  const char* const object = !options_.is_chat ? "text_completion"
                             : options_.stream ? "chat.completion.chunk"
                                               : "chat.completion";
  return "{\"id\":" + JsonText(header_.id) + ",\"object\":\"" + object +
         "\",\"created\":" + std::to_string(header_.created) +
         ",\"model\":" + JsonText(header_.model) + ",\"choices\":[";
}

std::string CompletionResponse::Body() const {
  std::string body = begin_;
  for (size_t i = 0; i < choices_.size(); ++i) body += (i == 0 ? "" : ",") + choices_[i].json;
  return body + "]," + usage_.Json() + "}";
}

std::string CompletionResponse::LastEvents() const {
  std::string events;
  if (options_.include_usage) events = SseEvent(begin_ + "]," + usage_.Json() + "}");
  return events.append(kSseDone);
}

}  // namespace tandem::gateway
