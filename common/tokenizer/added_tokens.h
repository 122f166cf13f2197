// Tokens that are recognised in the text itself, before anything else looks at it: "added_tokens"
// of tokenizer.json.
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
#include "common/tokenizer/json_field.h"
#include "common/tokenizer/normalizer.h"
#include "common/tokenizer/vocabulary.h"

namespace tandem {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  std::string normal_content;  // what is looked for and decoded: normalized, if the token is
  bool single_word = false;    // only between characters that are not of a word
  bool lstrip = false;         // takes the white space before it along
  bool rstrip = false;         // and that behind it
  bool normalized = false;     // looked for in the normalized text, itself normalized
  bool special = false;        // skip_special_tokens leaves it out
};

// Texts looked for at once, the longest that starts first (Aho-Corasick's leftmost-longest).
class TextTrie {
 public:
  // The first text of equals counts.
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
  // Called for each part from left to right: a token (then text is what it was found as), or text
  // between tokens.
  using Sink = absl::FunctionRef<absl::Status(const AddedToken* token, size_t start, size_t end)>;

  static absl::StatusOr<AddedTokens> FromJson(const JsonField& field, const Vocabulary& vocabulary,
                                              const Normalizer& normalizer);

  // Splits by the tokens that are looked for before (false) or after (true) normalization.
  absl::Status Split(std::string_view text, bool normalized, Sink sink) const;

  // nullptr if there is none.
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
