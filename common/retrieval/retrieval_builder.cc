#include "common/retrieval/retrieval_builder.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "common/retrieval/retrieval_format.h"
#include "common/status.h"

namespace tandem {
namespace {

absl::Status CannotWrite(const std::filesystem::path& path) {
  return Unavailable(path.string() + ": cannot be written: " + std::strerror(errno));
}

// Orders places as retrieval_format.h says.
class TextOrder {
 public:
  explicit TextOrder(std::span<const int32_t> tokens) : tokens_(tokens) {}

  bool operator()(uint32_t a, uint32_t b) const {
    // Each text ends with kDocumentEnd, so the comparison ends within the tokens.
    for (uint32_t i = 0; i < kSortedTokens; ++i) {
      const int32_t of_a = tokens_[a + i];
      const int32_t of_b = tokens_[b + i];
      if (of_a != of_b) return of_a < of_b;
      if (of_a == kDocumentEnd) break;
    }
    return a < b;
  }

 private:
  std::span<const int32_t> tokens_;
};

}  // namespace

RetrievalBuilder::RetrievalBuilder(std::filesystem::path path)
    : path_(std::move(path)), part_(path_.string() + ".part-" + std::to_string(getpid())) {}

absl::StatusOr<std::unique_ptr<RetrievalBuilder>> RetrievalBuilder::Create(
    const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::exists(std::filesystem::symlink_status(path, ignored))) {
    std::array<char, kRetrievalMagic.size()> begin = {};
    if (std::filesystem::is_regular_file(path, ignored)) {
      std::ifstream(path, std::ios::binary).read(begin.data(), begin.size());
    }
    if (begin != kRetrievalMagic) {
      return InvalidArgument(path.string() +
                             " exists and is no retrieval index, so it is not replaced; choose "
                             "another name");
    }
  }
  std::unique_ptr<RetrievalBuilder> builder(new RetrievalBuilder(path));
  const bool can_write = std::ofstream(builder->part_, std::ios::binary).good();
  const absl::Status status = can_write ? absl::OkStatus() : CannotWrite(path);
  std::filesystem::remove(builder->part_, ignored);
  if (!status.ok()) return status;
  return builder;
}

absl::Status RetrievalBuilder::Add(std::span<const int32_t> token_ids) {
  if (tokens_.size() + token_ids.size() + 1 > kMostRetrievalTokens) {
    return ResourceExhausted("the corpus has more than " + std::to_string(kMostRetrievalTokens) +
                             " tokens");
  }
  tokens_.insert(tokens_.end(), token_ids.begin(), token_ids.end());
  return absl::OkStatus();
}

void RetrievalBuilder::EndDocument() {
  if (tokens_.empty() || tokens_.back() == kDocumentEnd) return;
  tokens_.push_back(kDocumentEnd);
  ++num_documents_;
}

std::vector<uint32_t> RetrievalBuilder::SortPlaces(int num_threads,
                                                   const Progress& progress) const {
  // First by the first token, by counting. Then each of these groups by itself.
  const int32_t largest = *std::max_element(tokens_.begin(), tokens_.end());
  std::vector<size_t> ends(static_cast<size_t>(largest) + 2, 0);  // [t + 1]: of the group of t
  for (const int32_t token : tokens_) {
    if (token != kDocumentEnd) ++ends[static_cast<size_t>(token) + 1];
  }
  for (size_t i = 1; i < ends.size(); ++i) ends[i] += ends[i - 1];
  std::vector<uint32_t> places(ends.back());
  std::vector<size_t> next(ends.begin(), ends.end() - 1);
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if (tokens_[i] != kDocumentEnd) {
      places[next[static_cast<size_t>(tokens_[i])]++] = static_cast<uint32_t>(i);
    }
  }
  std::atomic<size_t> group{0};
  std::atomic<size_t> done{0};
  std::mutex mutex;  // guards progress
  const auto sort_groups = [&] {
    for (size_t i = group++; i + 1 < ends.size(); i = group++) {
      if (ends[i] == ends[i + 1]) continue;
      std::sort(places.begin() + static_cast<ptrdiff_t>(ends[i]),
                places.begin() + static_cast<ptrdiff_t>(ends[i + 1]), TextOrder(tokens_));
      done += ends[i + 1] - ends[i];
      const std::lock_guard<std::mutex> lock(mutex);
      if (progress) progress(static_cast<double>(done) / static_cast<double>(places.size()));
    }
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < num_threads; ++i) threads.emplace_back(sort_groups);
  sort_groups();
  for (std::thread& thread : threads) thread.join();
  return places;
}

absl::Status RetrievalBuilder::Write(const std::array<uint8_t, 32>& vocabulary, int num_threads,
                                     const Progress& progress) {
  EndDocument();
  if (tokens_.empty()) return InvalidArgument("the corpus has no tokens");
  const std::vector<uint32_t> places = SortPlaces(num_threads, progress);
  RetrievalHeader header;
  header.num_tokens = tokens_.size();
  header.num_places = places.size();
  header.vocabulary = vocabulary;
  std::ofstream out(part_, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(&header), sizeof(header));
  out.write(reinterpret_cast<const char*>(tokens_.data()),
            static_cast<std::streamsize>(tokens_.size() * sizeof(int32_t)));
  out.write(reinterpret_cast<const char*>(places.data()),
            static_cast<std::streamsize>(places.size() * sizeof(uint32_t)));
  out.close();
  std::error_code error;
  absl::Status status = out ? absl::OkStatus() : CannotWrite(path_);
  if (status.ok()) std::filesystem::rename(part_, path_, error);
  if (error) status = Unavailable(path_.string() + ": cannot be written: " + error.message());
  if (!status.ok()) std::filesystem::remove(part_, error);
  return status;
}

}  // namespace tandem
