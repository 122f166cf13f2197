#include "services/gateway/api/answers/text_choice.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "services/gateway/api/answers/json_text.h"

namespace tandem::gateway {

TextChoice::TextChoice(size_t index, bool has_logprobs, std::vector<int32_t> stop_token_ids,
                       std::string echo)
    : index_(index),
      has_logprobs_(has_logprobs),
      stop_token_ids_(std::move(stop_token_ids)),
      text_(std::move(echo)) {
  if (has_logprobs_) logprobs_.SetEcho(text_);
}

void TextChoice::AddPrompt(const v1::GenerateResponse& message) {
  if (!has_logprobs_) return;
  if (message.has_prompt_start()) logprobs_.AddStart(message.prompt_start());
  for (const v1::TokenLogprobs& token : message.prompt_logprobs()) logprobs_.AddPrompt(token);
}

void TextChoice::Add(const v1::GenerateResponse& message) {
  text_ += message.text();
  if (has_logprobs_) {
    for (const v1::TokenLogprobs& token : message.logprobs()) logprobs_.Add(token);
  }
  if (!message.has_completion()) return;
  has_ended_ = true;
  end_ = FinishReasonText(message.completion());
  stop_reason_ = StopReasonText(message.completion(), stop_token_ids_);
}

bool TextChoice::has_news() const { return !text_.empty() || !logprobs_.empty() || has_ended_; }

std::string TextChoice::Take() {
  return absl::StrCat("{\"index\":", index_, ",\"text\":", JsonText(std::exchange(text_, {})),
                      ",\"logprobs\":", has_logprobs_ ? logprobs_.Take() : "null",
                      ",\"finish_reason\":", end_, ",\"stop_reason\":", stop_reason_, "}");
}

}  // namespace tandem::gateway
