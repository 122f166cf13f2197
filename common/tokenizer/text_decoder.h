// Converts tokens to text: "decoder" of tokenizer.json.
#ifndef TANDEM_COMMON_TOKENIZER_TEXT_DECODER_H_
#define TANDEM_COMMON_TOKENIZER_TEXT_DECODER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/tokenizer/text/json_field.h"
#include "common/tokenizer/tokenizer.h"

namespace tandem {

// Hugging Face defines a decoder as a chain that maps lists of strings to lists of strings. Three
// kinds of chains are in use, and all of them can run token by token. The first kind has steps on
// single tokens (Replace, Strip, Metaspace), then ByteFallback, then Fuse and Strip at the start of
// the text. The second kind is ByteLevel. The third kind is null, which joins tokens with spaces.
// Other orders are refused. Immutable.
class TextDecoder {
 public:
  static absl::StatusOr<TextDecoder> FromJson(const JsonField& field);

  // `entry` is the token's text in the file.
  std::string Next(std::string_view entry, DecodeState& state) const;
  std::string End(DecodeState& state) const;

  // Returns the bytes that a token adds in the middle of a text.
  std::string TokenBytes(std::string_view entry) const;
  bool StripsLeadingSpace() const;

 private:
  // A step on single tokens.
  struct Step {
    enum class Kind { kReplace, kStrip, kMetaspace };
    Kind kind;
    std::string from;
    std::string to;           // kReplace, kMetaspace
    size_t count = 0;         // kStrip: largest number
    bool drop_first = false;  // `from` is dropped from the first token
  };
  enum class Phase { kTokens, kBytes, kText };

  absl::Status AddPart(const JsonField& field, Phase& phase);
  absl::Status AddStrip(const JsonField& field, Phase phase);
  absl::Status AddMetaspace(const JsonField& field);
  std::string ApplySteps(std::string_view entry, bool is_first) const;
  std::string StripStart(std::string text, DecodeState& state) const;
  std::string EndByteRun(DecodeState& state) const;

  bool join_with_spaces_ = false;
  bool byte_level_ = false;
  bool byte_fallback_ = false;
  std::vector<Step> steps_;
  std::string strip_content_;  // one character, left out at the start of the text
  size_t strip_count_ = 0;     // largest number of these characters
};

}  // namespace tandem

#endif  // TANDEM_COMMON_TOKENIZER_TEXT_DECODER_H_
