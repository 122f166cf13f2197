// Text to token ids and back, as tokenizer.json of a Hugging Face folder says.
#ifndef TANDEM_COMMON_TOKENIZER_TOKENIZER_H_
#define TANDEM_COMMON_TOKENIZER_TOKENIZER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

// BPE of two kinds: byte-level with a Split pattern (GPT-2, Llama-3, Qwen-2) and SentencePiece-style with byte fallback
// (Llama-2, TinyLlama, Mistral). Immutable after Load, so any thread may use it.
class Tokenizer {
 public:
  // Errors name file and field; unsupported parts are refused by name.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const std::filesystem::path& folder);
  virtual ~Tokenizer() = default;

  // `text` must be valid UTF-8. add_special_tokens: what the post-processor adds (beginning of text). Added tokens in the text
  // are recognised either way, as Hugging Face's tokenizers do.
  virtual absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text, bool add_special_tokens) const = 0;

  // Incomplete or invalid UTF-8 becomes U+FFFD. Ids that do not exist give nothing.
  virtual std::string Decode(std::span<const int32_t> token_ids, bool skip_special_tokens) const = 0;

  virtual size_t num_entries() const = 0;  // highest id + 1
  // The entry's own text in the file (not decoded); empty where no entry has the id.
  virtual std::string_view Entry(int32_t token_id) const = 0;
  virtual bool IsSpecial(int32_t token_id) const = 0;
  // SHA-256 over (id, length, bytes) of every entry in order of id.
  virtual std::array<uint8_t, 32> Fingerprint() const = 0;

  // The bytes that a token adds in the middle of a text (byte-level: its bytes; SentencePiece: "▁" is a space, <0xNN> a
  // byte). What StreamingDetokenizer is made of. Special tokens give their content.
  virtual std::string TokenBytes(int32_t token_id) const = 0;
  // True where Decode drops one leading space of the text (SentencePiece-style decoders' Strip).
  virtual bool StripsLeadingSpace() const = 0;
};

// Turns a growing list of tokens into text, whole characters only: the concatenation of all Push results and Finish
// equals Decode of all tokens.
class StreamingDetokenizer {
 public:
  // `tokenizer` must outlive it.
  StreamingDetokenizer(const Tokenizer* tokenizer, bool skip_special_tokens);

  // The text that is certain after this token; empty while a character is incomplete.
  std::string Push(int32_t token_id);
  // An incomplete character becomes U+FFFD.
  std::string Finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_tokens_;
  bool at_start_ = true;
  std::string incomplete_;  // bytes of a character that has begun
};

}  // namespace tandem

#endif  // TANDEM_COMMON_TOKENIZER_TOKENIZER_H_
