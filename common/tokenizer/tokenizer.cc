#include "common/tokenizer/tokenizer.h"

#include <utility>

#include "common/tokenizer/bpe_tokenizer.h"
#include "common/tokenizer/unicode.h"

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

}  // namespace tandem
