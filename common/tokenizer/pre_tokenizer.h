// Splits a normalized text into the words that BPE merges within: "pre_tokenizer" of
// tokenizer.json.
#ifndef TANDEM_COMMON_TOKENIZER_PRE_TOKENIZER_H_
#define TANDEM_COMMON_TOKENIZER_PRE_TOKENIZER_H_

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/tokenizer/text/json_field.h"

namespace tandem {

struct TextView {
  std::string_view text;
  bool at_origin;  // see TextPiece
};
// Called for each part from left to right. The view is valid during the call.
using TextSink = absl::FunctionRef<absl::Status(TextView)>;

class PreTokenizerStep {
 public:
  virtual ~PreTokenizerStep() = default;
  // PRECOND: the text is not empty.
  virtual absl::Status Apply(TextView piece, TextSink next) const = 0;
};

// Supports Split, ByteLevel, Metaspace, Digits, Punctuation, Whitespace, WhitespaceSplit, and
// sequences of them. Null means no pre-tokenizer. Immutable.
class PreTokenizer {
 public:
  static absl::StatusOr<PreTokenizer> FromJson(const JsonField& field);

  // Returns an error of the sink, or an error if a pattern takes too long.
  absl::Status Split(TextView piece, TextSink word) const { return SplitFrom(0, piece, word); }

 private:
  absl::Status AddSteps(const JsonField& field);
  absl::Status SplitFrom(size_t step, TextView piece, TextSink word) const;

  std::vector<std::unique_ptr<PreTokenizerStep>> steps_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_TOKENIZER_PRE_TOKENIZER_H_
