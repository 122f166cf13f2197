// Makes the file of a retrieval index.
#ifndef TANDEM_COMMON_RETRIEVAL_RETRIEVAL_BUILDER_H_
#define TANDEM_COMMON_RETRIEVAL_RETRIEVAL_BUILDER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

// Collects documents, sorts their places, and writes the file. Memory: up to 12 bytes for each
// token while the tokens grow, and 8 while they are sorted.
class RetrievalBuilder {
 public:
  // Called from time to time with the share of the work that is done, in [0, 1].
  using Progress = std::function<void(double done)>;

  // Checks that a file can be written beside `path`, which becomes `path` at the end, so that no
  // reader sees a part of it. INVALID_ARGUMENT: `path` exists and is no index, so it is not
  // replaced. UNAVAILABLE: the file cannot be written; the message says why.
  static absl::StatusOr<std::unique_ptr<RetrievalBuilder>> Create(
      const std::filesystem::path& path);

  // Adds tokens to the document at hand. RESOURCE_EXHAUSTED: more than 2^32 - 1 tokens in all.
  absl::Status Add(std::span<const int32_t> token_ids);
  // Ends the document at hand, if it has tokens. No text of the index goes on beyond it.
  void EndDocument();

  size_t num_tokens() const { return tokens_.size() - num_documents_; }
  size_t num_documents() const { return num_documents_; }

  // Sorts the places, in `num_threads` threads, and writes the index. `vocabulary`:
  // Tokenizer::Fingerprint. INVALID_ARGUMENT: there are no tokens. UNAVAILABLE: as Create.
  absl::Status Write(const std::array<uint8_t, 32>& vocabulary, int num_threads,
                     const Progress& progress);

 private:
  explicit RetrievalBuilder(std::filesystem::path path);
  std::vector<uint32_t> SortPlaces(int num_threads, const Progress& progress) const;

  const std::filesystem::path path_;
  const std::filesystem::path part_;  // the file beside it, while it is written
  std::vector<int32_t> tokens_;
  size_t num_documents_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_RETRIEVAL_RETRIEVAL_BUILDER_H_
