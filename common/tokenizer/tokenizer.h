// Converts text to token ids and back, as tokenizer.json of a Hugging Face folder describes.
#ifndef TANDEM_COMMON_TOKENIZER_TOKENIZER_H_
#define TANDEM_COMMON_TOKENIZER_TOKENIZER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

// The state of decoding a text. It is a value, so it can be copied together with its owner.
struct DecodeState {
  bool at_start = true;              // no token has counted yet
  bool may_strip = true;             // no text has come out yet
  size_t num_stripped = 0;           // leading characters left out
  bool byte_run_is_invalid = false;  // the run of SentencePiece's byte tokens is not UTF-8
  size_t byte_run_checked = 0;       // bytes of whole characters in `incomplete`
  std::string incomplete;  // bytes of a character that has begun, or of a run of byte tokens
};

// Two kinds of BPE are supported: byte-level with a Split pattern (GPT-2, Llama-3, Qwen-2), and
// SentencePiece-style with byte fallback (Llama-2, TinyLlama, Mistral). Immutable after Load, so
// any thread may use the tokenizer.
class Tokenizer {
 public:
  // Errors name the file and the field. Unsupported parts are refused by name.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const std::filesystem::path& folder);
  virtual ~Tokenizer() = default;

  // `text` must be valid UTF-8. With add_special_tokens, the post-processor adds its tokens
  // (beginning of text). Added tokens in the text are recognized in both cases, as Hugging Face's
  // tokenizers do.
  virtual absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                                      bool add_special_tokens) const = 0;

  // Incomplete or invalid UTF-8 becomes U+FFFD. Ids that do not exist give nothing.
  virtual std::string Decode(std::span<const int32_t> token_ids,
                             bool skip_special_tokens) const = 0;

  virtual size_t num_entries() const = 0;  // highest id + 1
  // The entry's own text in the file (not decoded). Empty if no entry has the id.
  virtual std::string_view Entry(int32_t token_id) const = 0;
  virtual bool IsSpecial(int32_t token_id) const = 0;
  // SHA-256 over (id, length, bytes) of every entry in order of id.
  virtual std::array<uint8_t, 32> Fingerprint() const = 0;

  // The bytes that a token adds in the middle of a text (byte-level: its bytes; SentencePiece: "▁"
  // is a space, <0xNN> a byte). Special tokens give their content. StreamingDetokenizer uses this
  // function.
  virtual std::string TokenBytes(int32_t token_id) const = 0;
  // True if Decode drops one leading space of the text (Strip of SentencePiece-style decoders).
  virtual bool StripsLeadingSpace() const = 0;

  // Decodes one token at a time and returns the text that is certain after this token. This version
  // uses TokenBytes and StripsLeadingSpace. Decoders that must look beyond one character override
  // this function.
  virtual std::string DecodeNext(int32_t token_id, bool skip_special_tokens,
                                 DecodeState& state) const;
  // Returns the text for the incomplete rest at the end of a text.
  virtual std::string DecodeEnd(DecodeState& state) const;
};

// Turns a growing list of tokens into text, in whole characters. The concatenation of all results
// of Push and Finish equals Decode of all tokens. Invalid bytes give U+FFFD as soon as they are
// certain. A run of SentencePiece's byte tokens is returned when the run ends: Decode treats the
// run as text only if all of it is UTF-8, and otherwise gives U+FFFD for each byte.
class StreamingDetokenizer {
 public:
  // `tokenizer` must outlive this object.
  StreamingDetokenizer(const Tokenizer* tokenizer, bool skip_special_tokens);

  // Returns the text that is certain after this token. Empty while a character is incomplete.
  std::string Push(int32_t token_id);
  // Turns an incomplete character into U+FFFD.
  std::string Finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_tokens_;
  DecodeState state_;
};

// Decodes the ids. Gives up with RESOURCE_EXHAUSTED if the text grows over `max_bytes`, because a
// short list of ids can be a long text.
absl::StatusOr<std::string> DecodeWithin(const Tokenizer& tokenizer,
                                         std::span<const int32_t> token_ids,
                                         bool skip_special_tokens, size_t max_bytes);

}  // namespace tandem

#endif  // TANDEM_COMMON_TOKENIZER_TOKENIZER_H_
