// Byte-pair encoding of one word: "model" of tokenizer.json. Sennrich, Haddow, Birch 2016.
#ifndef TANDEM_COMMON_TOKENIZER_BPE_MODEL_H_
#define TANDEM_COMMON_TOKENIZER_BPE_MODEL_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/tokenizer/text/json_field.h"
#include "common/tokenizer/tokenizer_file.h"
#include "common/tokenizer/vocabulary.h"

namespace tandem {

// Immutable.
class BpeModel {
 public:
  // Takes the vocabulary and the merges. Fails if something is not supported, and names it, or if a
  // merge has an entry that does not exist.
  static absl::StatusOr<BpeModel> FromJson(const JsonField& field, Vocabulary vocabulary,
                                           const std::optional<MergeList>& merges);

  // Appends the tokens of `word`. Repeatedly merges the adjacent pair of lowest rank; of equal
  // pairs, the leftmost. O(n log n). INVALID_ARGUMENT: neither the vocabulary nor the unknown token
  // covers a character.
  absl::Status Encode(std::string_view word, std::vector<int32_t>& token_ids) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  struct Merge {
    uint32_t rank;
    int32_t id;  // id of the result
  };
  struct Symbol {
    int32_t id;
    int32_t previous;  // kNoSymbol at the ends; a symbol merged away has id kMergedAway
    int32_t next;
  };
  static constexpr int32_t kNoSymbol = -1;
  static constexpr int32_t kMergedAway = -1;

  absl::Status AppendSymbols(std::string_view word, std::vector<Symbol>& symbols) const;
  bool AppendBytes(std::string_view character, std::vector<Symbol>& symbols) const;
  void MergeAll(std::vector<Symbol>& symbols) const;
  const Merge* FindMerge(int32_t left, int32_t right) const;

  Vocabulary vocabulary_;
  absl::flat_hash_map<uint64_t, Merge> merges_;  // by (left id << 32 | right id)
  bool ignore_merges_ = false;                   // a word that is an entry is one token
  bool fuse_unknown_ = false;                    // adjacent unknown characters become one token
  std::optional<std::string> unknown_token_;
  std::array<std::optional<int32_t>, 256> byte_tokens_;  // <0xNN>, if the model falls back to bytes
};

}  // namespace tandem

#endif  // TANDEM_COMMON_TOKENIZER_BPE_MODEL_H_
