#include "services/gateway/api/answers/choice_logprobs.h"

#include <algorithm>
#include <set>
#include <utility>

#include "services/gateway/api/answers/json_text.h"

namespace tandem::gateway {
namespace {

// JSON has no infinity. OpenAI and vLLM write this number for a token that cannot be chosen.
constexpr float kLeastLogprob = -9999;

void AppendItem(std::string* list, const std::string& item) {
  if (!list->empty()) *list += ',';
  *list += item;
}

}  // namespace

std::string LogprobText(float logprob) {
  return JsonNumber(std::max(logprob, kLeastLogprob));  // a NaN gives the other number
}

int64_t CountCharacters(std::string_view bytes) {
  return std::count_if(bytes.begin(), bytes.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

std::string TokenName(const std::string& text, const std::string& bytes) {
  constexpr std::string_view kReplacement = "\xef\xbf\xbd";
  // A text that is not its bytes and has U+FFFD stands for a part of a character. A special token
  // has a name and no bytes of its own.
  if (text == bytes || bytes.empty() || text.find(kReplacement) == std::string::npos) return text;
  constexpr char kDigits[] = "0123456789abcdef";
  std::string name = "bytes:";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    name += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 0xf]};
  }
  return name;
}

void ChoiceLogprobs::SetEcho(std::string text) {
  offset_ = CountCharacters(text);
  echo_ = std::move(text);
}

int64_t ChoiceLogprobs::TakePlace(std::string_view bytes) {
  const std::string_view rest = std::string_view(echo_).substr(echo_place_);
  // Some tokenizers begin a text with a space that the text does not have.
  if (echo_place_ == 0 && bytes.starts_with(' ') && !rest.starts_with(' ')) bytes.remove_prefix(1);
  const int64_t offset = echo_offset_;
  if (rest.starts_with(bytes)) {
    echo_place_ += bytes.size();
    echo_offset_ += CountCharacters(bytes);
  }
  return offset;
}

void ChoiceLogprobs::AddStart(const v1::PromptStart& token) {
  AppendItem(&tokens_, JsonText(TokenName(token.text(), token.bytes())));
  AppendItem(&token_logprobs_, "null");
  AppendItem(&top_logprobs_, "null");
  AppendItem(&text_offset_, std::to_string(TakePlace(token.bytes())));
}

void ChoiceLogprobs::AddPrompt(const v1::TokenLogprobs& token) {
  Append(token, TakePlace(token.bytes()));
}

void ChoiceLogprobs::Add(const v1::TokenLogprobs& token) {
  Append(token, offset_);
  offset_ += CountCharacters(token.bytes());
}

void ChoiceLogprobs::Append(const v1::TokenLogprobs& token, int64_t offset) {
  const std::string name = TokenName(token.text(), token.bytes());
  AppendItem(&tokens_, JsonText(name));
  AppendItem(&token_logprobs_, LogprobText(token.logprob()));
  std::string top;
  std::set<std::string> names;
  const auto add = [&](const std::string& of_token, float logprob) {
    if (names.insert(of_token).second) {
      AppendItem(&top, JsonText(of_token) + ":" + LogprobText(logprob));
    }
  };
  for (const v1::TopLogprob& entry : token.top()) {
    add(TokenName(entry.text(), entry.bytes()), entry.logprob());
  }
  add(name, token.logprob());  // the chosen token is there even if it is not among the first
  AppendItem(&top_logprobs_, "{" + top + "}");
  AppendItem(&text_offset_, std::to_string(offset));
}

std::string ChoiceLogprobs::Take() {
  return "{\"tokens\":[" + std::exchange(tokens_, {}) + "],\"token_logprobs\":[" +
         std::exchange(token_logprobs_, {}) + "],\"top_logprobs\":[" +
         std::exchange(top_logprobs_, {}) + "],\"text_offset\":[" +
         std::exchange(text_offset_, {}) + "]}";
}

}  // namespace tandem::gateway
