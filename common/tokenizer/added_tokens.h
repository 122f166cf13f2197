// Tokens that are recognized in the text itself, before all other steps: "added_tokens" of
// tokenizer.json.
#ifndef TANDEM_COMMON_TOKENIZER_ADDED_TOKENS_H_
#define TANDEM_COMMON_TOKENIZER_ADDED_TOKENS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/tokenizer/normalizer.h"
#include "common/tokenizer/text/json_field.h"
#include "common/tokenizer/vocabulary.h"

namespace tandem {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  std::string normal_content;  // text to look for and to decode; normalized if `normalized` is set
  bool single_word = false;    // found only between characters that belong to no word
  bool lstrip = false;         // includes the white space before the token
  bool rstrip = false;         // includes the white space after the token
  bool normalized = false;     // normalized itself, and looked for in the normalized text
  bool special = false;        // skip_special_tokens leaves it out
};

// Searches for several texts at once and finds the leftmost, longest one (Aho-Corasick).
class TextTrie {
 public:
  // If texts are equal, the first one wins.
  void Add(std::string_view text, size_t value);
  struct Match {
    size_t start;
    size_t end;
    size_t value;
  };
  std::optional<Match> Find(std::string_view text, size_t start) const;

 private:
  static constexpr size_t kNone = SIZE_MAX;
  absl::flat_hash_map<uint64_t, uint32_t> children_;  // (node << 8 | byte) -> node; 0 is the root
  std::vector<size_t> values_ = {kNone};              // [nodes]
  std::array<bool, 256> starts_{};                    // bytes that a text begins with
};

// Immutable after FromJson.
class AddedTokens {
 public:
  // Called for each part from left to right. A part is either a token, with the text that was found
  // for it, or the text between two tokens.
  using Sink = absl::FunctionRef<absl::Status(const AddedToken* token, size_t start, size_t end)>;

  static absl::StatusOr<AddedTokens> FromJson(const JsonField& field, const Vocabulary& vocabulary,
                                              const Normalizer& normalizer);

  // Splits at the tokens that are searched for before (false) or after (true) normalization.
  absl::Status Split(std::string_view text, bool normalized, Sink sink) const;

  // Returns nullptr if no added token has this id.
  const AddedToken* Find(int32_t id) const;
  size_t num_ids() const { return num_ids_; }  // highest id + 1

 private:
  std::vector<AddedToken> tokens_;
  absl::flat_hash_map<int32_t, size_t> index_of_id_;
  size_t num_ids_ = 0;
  TextTrie raw_;
  TextTrie normalized_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_TOKENIZER_ADDED_TOKENS_H_
