#include "common/tokenizer/tokenizer.h"

#include <utility>

#include "common/status.h"
#include "common/tokenizer/bpe_tokenizer.h"
#include "common/tokenizer/text/unicode.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Load(const std::filesystem::path& folder) {
  return BpeTokenizer::Load(folder / "tokenizer.json");
}

std::string Tokenizer::DecodeNext(int32_t token_id, bool skip_special_tokens,
                                  DecodeState& state) const {
  if (skip_special_tokens && IsSpecial(token_id)) return {};
  std::string text;
  AppendRepairedUtf8(TokenBytes(token_id), state.incomplete, text);
  if (text.empty()) return text;
  const bool is_first = std::exchange(state.may_strip, false);
  if (is_first && StripsLeadingSpace() && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

std::string Tokenizer::DecodeEnd(DecodeState& state) const {
  return std::exchange(state.incomplete, {}).empty() ? std::string()
                                                     : std::string(kReplacementCharacter);
}

StreamingDetokenizer::StreamingDetokenizer(const Tokenizer* tokenizer, bool skip_special_tokens)
    : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens) {}

std::string StreamingDetokenizer::Push(int32_t token_id) {
  return tokenizer_->DecodeNext(token_id, skip_special_tokens_, state_);
}

std::string StreamingDetokenizer::Finish() { return tokenizer_->DecodeEnd(state_); }

absl::StatusOr<std::string> DecodeWithin(const Tokenizer& tokenizer,
                                         std::span<const int32_t> token_ids,
                                         bool skip_special_tokens, size_t max_bytes) {
  StreamingDetokenizer detokenizer(&tokenizer, skip_special_tokens);
  std::string text;
  for (size_t i = 0; i < token_ids.size() && text.size() <= max_bytes; ++i) {
    text += detokenizer.Push(token_ids[i]);
  }
  if (text.size() <= max_bytes) text += detokenizer.Finish();
  if (text.size() <= max_bytes) return text;
  return ResourceExhausted("ids: their text has more than " + std::to_string(max_bytes) +
                           " bytes, the limit of one message (send fewer ids at a time)");
}

}  // namespace tandem
