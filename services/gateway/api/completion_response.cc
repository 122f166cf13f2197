#include "services/gateway/api/completion_response.h"

#include <algorithm>
#include <utility>

#include "services/gateway/api/json_text.h"

namespace tandem::gateway {
namespace {

std::string FinishReason(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_STOP:
      return "\"stop\"";
    case v1::FINISH_REASON_LENGTH:
      return "\"length\"";
    default:
      return "null";
  }
}

std::string StopReason(const v1::Completion& completion) {
  switch (completion.stop_reason_case()) {
    case v1::Completion::kStopString:
      return JsonText(completion.stop_string());
    case v1::Completion::kStopTokenId:
      return std::to_string(completion.stop_token_id());
    default:
      return "null";
  }
}

std::string Member(const char* name, int64_t value) {
  return "\"" + std::string(name) + "\":" + std::to_string(value);
}

}  // namespace

void AnswerUsage::Add(const v1::Completion& completion) {
  const v1::Usage& usage = completion.usage();
  usage_.set_prompt_tokens(usage_.prompt_tokens() + usage.prompt_tokens());
  usage_.set_completion_tokens(usage_.completion_tokens() + usage.completion_tokens());
  usage_.set_cached_prompt_tokens(usage_.cached_prompt_tokens() + usage.cached_prompt_tokens());
  usage_.set_accepted_prediction_tokens(usage_.accepted_prediction_tokens() +
                                        usage.accepted_prediction_tokens());
  usage_.set_rejected_prediction_tokens(usage_.rejected_prediction_tokens() +
                                        usage.rejected_prediction_tokens());
  const v1::SpeculationStats& stats = completion.speculation();
  speculation_.set_num_drafts(speculation_.num_drafts() + stats.num_drafts());
  speculation_.set_num_draft_tokens(speculation_.num_draft_tokens() + stats.num_draft_tokens());
  speculation_.set_num_tested_tokens(speculation_.num_tested_tokens() + stats.num_tested_tokens());
  speculation_.set_num_accepted_tokens(speculation_.num_accepted_tokens() +
                                       stats.num_accepted_tokens());
  speculation_.set_num_plain_rounds(speculation_.num_plain_rounds() + stats.num_plain_rounds());
  if (!stats.drafter().empty()) speculation_.set_drafter(stats.drafter());
  speculation_.set_reproducible(stats.reproducible());
  for (const std::string& warning : completion.warnings()) {
    if (std::find(warnings_.begin(), warnings_.end(), warning) == warnings_.end()) {
      warnings_.push_back(warning);
    }
  }
}

std::string AnswerUsage::Json() const {
  const auto ratio = [](int part, int whole) {
    return JsonNumber(whole == 0 ? 0 : static_cast<double>(part) / whole);
  };
  const v1::SpeculationStats& stats = speculation_;
  const std::string drafter = stats.drafter().empty() ? "null" : JsonText(stats.drafter());
  std::string json =
      "\"usage\":{" + Member("prompt_tokens", usage_.prompt_tokens()) + "," +
      Member("completion_tokens", usage_.completion_tokens()) + "," +
      Member("total_tokens", usage_.prompt_tokens() + usage_.completion_tokens()) +
      ",\"prompt_tokens_details\":{" + Member("cached_tokens", usage_.cached_prompt_tokens()) +
      "},\"completion_tokens_details\":{" +
      Member("accepted_prediction_tokens", usage_.accepted_prediction_tokens()) + "," +
      Member("rejected_prediction_tokens", usage_.rejected_prediction_tokens()) +
      "}},\"speculation\":{" + Member("num_drafts", stats.num_drafts()) + "," +
      Member("num_draft_tokens", stats.num_draft_tokens()) + "," +
      Member("num_tested_tokens", stats.num_tested_tokens()) + "," +
      Member("num_accepted_tokens", stats.num_accepted_tokens()) + "," +
      Member("num_plain_rounds", stats.num_plain_rounds()) +
      ",\"acceptance_rate\":" + ratio(stats.num_accepted_tokens(), stats.num_draft_tokens()) +
      ",\"drafter\":" + drafter + ",\"reproducible\":" + (stats.reproducible() ? "true" : "false") +
      "}";
  if (warnings_.empty()) return json;
  json += ",\"warnings\":[";
  for (size_t i = 0; i < warnings_.size(); ++i)
    json += (i == 0 ? "" : ",") + JsonText(warnings_[i]);
  return json + "]";
}

CompletionResponse::CompletionResponse(Header header, const AnswerOptions& options,
                                       size_t num_choices)
    : header_(std::move(header)), options_(options), choices_(num_choices) {}

void CompletionResponse::SetEcho(size_t choice, std::string prompt) {
  choices_[choice].logprobs.SetOffset(CountCharacters(prompt));
  choices_[choice].text = std::move(prompt);
}

std::string CompletionResponse::Add(size_t index, const v1::GenerateResponse& message) {
  Choice& choice = choices_[index];
  choice.text += message.text();
  if (options_.logprobs) {
    for (const v1::TokenLogprobs& token : message.logprobs()) choice.logprobs.Add(token);
  }
  if (message.has_completion() && !choice.is_complete) {
    choice.is_complete = true;
    ++num_complete_;
    choice.end = FinishReason(message.completion().finish_reason());
    choice.stop_reason = StopReason(message.completion());
    usage_.Add(message.completion());
    if (!options_.stream) choice.json = TakeChoice(index);
  }
  if (!options_.stream) return "";
  if (choice.text.empty() && choice.logprobs.empty() && !message.has_completion()) return "";
  return SseEvent(Begin() + TakeChoice(index) +
                  (options_.include_usage ? "],\"usage\":null}" : "]}"));
}

std::string CompletionResponse::TakeChoice(size_t index) {
  Choice& choice = choices_[index];
  std::string json = "{\"index\":" + std::to_string(index) +
                     ",\"text\":" + JsonText(std::exchange(choice.text, {})) + ",\"logprobs\":";
  json += options_.logprobs ? choice.logprobs.Take() : "null";
  return json + ",\"finish_reason\":" + choice.end + ",\"stop_reason\":" + choice.stop_reason + "}";
}

std::string CompletionResponse::Begin() const {
  return "{\"id\":" + JsonText(header_.id) +
         ",\"object\":\"text_completion\",\"created\":" + std::to_string(header_.created) +
         ",\"model\":" + JsonText(header_.model) + ",\"choices\":[";
}

std::string CompletionResponse::Body() const {
  std::string body = Begin();
  for (size_t i = 0; i < choices_.size(); ++i) body += (i == 0 ? "" : ",") + choices_[i].json;
  return body + "]," + usage_.Json() + "}";
}

std::string CompletionResponse::LastEvents() const {
  std::string events;
  if (options_.include_usage) events = SseEvent(Begin() + "]," + usage_.Json() + "}");
  return events.append(kSseDone);
}

}  // namespace tandem::gateway
