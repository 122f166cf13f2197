// The entries of a vocabulary: text <-> id.
#ifndef TANDEM_COMMON_TOKENIZER_VOCABULARY_H_
#define TANDEM_COMMON_TOKENIZER_VOCABULARY_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace tandem {

// Ids of a vocabulary are below this number. It is eight times the size of the largest known
// vocabulary. It is also small enough that a file with one huge id cannot make the process allocate
// much memory.
inline constexpr int64_t kMaxVocabularySize = int64_t{1} << 21;

// Texts lie one after the other in one buffer, and an open-addressing table of ids finds them. Add
// fills the vocabulary, which is then only read.
class Vocabulary {
 public:
  // Errors: an id is out of range, or an id or a text is given twice. They do not name the file.
  absl::Status Add(std::string_view text, int64_t id);

  std::optional<int32_t> Find(std::string_view text) const;
  bool Has(int32_t id) const;
  // Returns an empty text if there is no entry. Valid until the next Add.
  std::string_view Text(int32_t id) const;
  size_t num_ids() const { return spans_.size(); }  // highest id + 1
  size_t size() const { return size_; }             // entries

 private:
  struct Span {
    uint32_t offset = 0;
    uint32_t length = kAbsent;
  };
  static constexpr uint32_t kAbsent = UINT32_MAX;
  static constexpr int32_t kFree = -1;

  // Returns the place of `text` in table_, or the free place where it belongs.
  size_t Place(std::string_view text) const;
  void Grow();

  std::string texts_;
  std::vector<Span> spans_;     // [num_ids]
  std::vector<int32_t> table_;  // a power of two, at most half full
  size_t size_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_TOKENIZER_VOCABULARY_H_
