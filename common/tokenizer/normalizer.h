// Changes a text before it is split: "normalizer" of tokenizer.json.
#ifndef TANDEM_COMMON_TOKENIZER_NORMALIZER_H_
#define TANDEM_COMMON_TOKENIZER_NORMALIZER_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/tokenizer/text/json_field.h"

namespace tandem {

// A part of the text on its way to the model.
struct TextPiece {
  std::string text;
  bool at_origin;  // its first character comes from the first character of the whole text
};

class NormalizerStep {
 public:
  virtual ~NormalizerStep() = default;
  virtual absl::Status Apply(TextPiece& piece) const = 0;
};

// Supports NFC, NFD, NFKC, NFKD, Lowercase, Strip, Prepend, Replace, and sequences of them. Null
// means no normalizer. Immutable.
class Normalizer {
 public:
  static absl::StatusOr<Normalizer> FromJson(const JsonField& field);

  // Returns an error if a pattern takes too long.
  absl::Status Apply(TextPiece& piece) const;

 private:
  absl::Status AddSteps(const JsonField& field);

  std::vector<std::unique_ptr<NormalizerStep>> steps_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_TOKENIZER_NORMALIZER_H_
