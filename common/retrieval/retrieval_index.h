// Finds what followed a context in a corpus (He et al. 2023, "REST: Retrieval-Based Speculative
// Decoding", arXiv 2311.08252).
#ifndef TANDEM_COMMON_RETRIEVAL_RETRIEVAL_INDEX_H_
#define TANDEM_COMMON_RETRIEVAL_RETRIEVAL_INDEX_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/retrieval/retrieval_format.h"

namespace tandem {

// What followed the context in the corpus.
struct RetrievedText {
  std::vector<int32_t> token_ids;  // empty: the context is not in the corpus
  std::vector<int32_t> parents;    // as in ContinuationTree
  uint32_t match_length = 0;       // last tokens of the context that stand in the corpus
};

// The file is read with system calls and is not mapped, because a file that becomes shorter, or a
// disk that fails, must not end the process. Any thread may use the index.
class RetrievalIndex {
 public:
  // Shortest and longest end of a context that is looked for.
  static constexpr uint32_t kLeastMatch = 2;
  static constexpr uint32_t kMostMatch = 32;
  static_assert(kMostMatch <= kSortedTokens);

  // NOT_FOUND, or INVALID_ARGUMENT if the file is no index, was cut off, or has another version.
  // Errors name the file.
  static absl::StatusOr<std::unique_ptr<RetrievalIndex>> Open(const std::filesystem::path& path);
  ~RetrievalIndex();
  RetrievalIndex(const RetrievalIndex&) = delete;
  RetrievalIndex& operator=(const RetrievalIndex&) = delete;

  // Finds the places after which the longest end of `context` stands, and merges what follows them
  // into a tree of up to `max_nodes` tokens below `vocabulary_size` and of up to `max_depth` tokens
  // on a path (common/continuation_tree.h). `max_nodes` 0: a chain of the most frequent tokens. A
  // token follows a quarter of the places, or a sixteenth in a tree. Of many places, kMostPlaces
  // are looked at, which are spread evenly. Reads may wait for the disk. A file whose content is
  // not what its header promises gives useless tokens. DATA_LOSS: the file cannot be read any more.
  absl::StatusOr<RetrievedText> Find(std::span<const int32_t> context, uint32_t max_depth,
                                     uint32_t vocabulary_size, uint32_t max_nodes = 0) const;

  const std::array<uint8_t, 32>& vocabulary() const { return header_.vocabulary; }
  uint64_t num_tokens() const { return header_.num_places; }

 private:
  class Search;
  static constexpr size_t kMostPlaces = 64;

  RetrievalIndex(std::filesystem::path path, int descriptor)
      : path_(std::move(path)), descriptor_(descriptor) {}
  // Reads `size` bytes at `offset` of the file.
  absl::Status Read(uint64_t offset, void* to, size_t size) const;

  const std::filesystem::path path_;
  const int descriptor_;
  RetrievalHeader header_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_RETRIEVAL_RETRIEVAL_INDEX_H_
