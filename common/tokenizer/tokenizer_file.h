// Reads tokenizer.json within limits: a hostile file is refused early and cheaply.
#ifndef TANDEM_COMMON_TOKENIZER_TOKENIZER_FILE_H_
#define TANDEM_COMMON_TOKENIZER_TOKENIZER_FILE_H_

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/vocabulary.h"
#include "nlohmann/json.hpp"

namespace tandem {

// The pairs of model.merges in order of rank. All texts are in one buffer.
class MergeList {
 public:
  struct Pair {
    std::string_view left;
    std::string_view right;
  };
  void Add(std::string_view left, std::string_view right);
  size_t size() const { return spans_.size(); }
  Pair operator[](size_t rank) const;

 private:
  struct Span {
    uint32_t offset;
    uint32_t left_length;
    uint32_t right_length;
  };
  std::string texts_;
  std::vector<Span> spans_;
};

// The two large parts never become a JSON tree. A tree of 130,000 entries and twice that number of
// merges would take 100 MB.
struct TokenizerFile {
  nlohmann::json tree;  // everything except model.vocab and model.merges
  Vocabulary vocabulary;
  std::optional<MergeList> merges;

  // Errors name the file and the field. There are limits on the file's size, the depth, the length
  // of a string, and the number of values in the tree.
  static absl::StatusOr<TokenizerFile> Read(const std::filesystem::path& path);
};

}  // namespace tandem

#endif  // TANDEM_COMMON_TOKENIZER_TOKENIZER_FILE_H_
