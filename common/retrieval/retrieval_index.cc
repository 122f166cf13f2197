#include "common/retrieval/retrieval_index.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "common/continuation_tree.h"
#include "common/status.h"

namespace tandem {
// One search. The first error of a read ends it: what comes after does not matter.
class RetrievalIndex::Search {
 public:
  struct Range {
    uint64_t begin;
    uint64_t end;
  };

  explicit Search(const RetrievalIndex& index) : index_(index), header_(index.header_) {}

  const absl::Status& status() const { return status_; }

  uint64_t PlaceAt(uint64_t i) {
    uint32_t place = 0;
    Read(PlacesOffset() + i * sizeof(place), &place, sizeof(place));
    return place;
  }

  // Reads the tokens from a place on. What lies beyond the last token, as a damaged file may have
  // it, counts as kDocumentEnd.
  void TokensAt(uint64_t place, std::span<int32_t> tokens) {
    const uint64_t left = header_.num_tokens - std::min(header_.num_tokens, place);
    const size_t count = std::min<uint64_t>(tokens.size(), left);
    std::fill(tokens.begin(), tokens.end(), kDocumentEnd);
    if (count > 0) {
      Read(sizeof(header_) + place * sizeof(int32_t), tokens.data(), count * sizeof(int32_t));
    }
  }

  // The places where `text` stands.
  Range PlacesOf(std::span<const int32_t> text) {
    const uint64_t begin = FirstPlace(0, [&](uint64_t place) { return Compare(place, text) >= 0; });
    const uint64_t end =
        FirstPlace(begin, [&](uint64_t place) { return Compare(place, text) > 0; });
    return {begin, end};
  }

 private:
  uint64_t PlacesOffset() const { return sizeof(header_) + header_.num_tokens * sizeof(int32_t); }

  void Read(uint64_t offset, void* to, size_t size) {
    if (status_.ok()) status_ = index_.Read(offset, to, size);
  }

  // The first place from `begin` on for which `holds` is true, as it is for all places after it.
  template <class Holds>
  uint64_t FirstPlace(uint64_t begin, const Holds& holds) {
    uint64_t end = header_.num_places;
    while (begin < end && status_.ok()) {
      const uint64_t middle = begin + (end - begin) / 2;
      if (holds(PlaceAt(middle))) {
        end = middle;
      } else {
        begin = middle + 1;
      }
    }
    return begin;
  }

  // Compares the text at a place with `text`, up to the length of `text`: < 0, 0 or > 0.
  int Compare(uint64_t place, std::span<const int32_t> text) {
    std::array<int32_t, kMostMatch> buffer;
    const std::span<int32_t> there = std::span(buffer).first(text.size());
    TokensAt(place, there);
    for (size_t i = 0; i < text.size(); ++i) {
      if (there[i] != text[i]) return there[i] < text[i] ? -1 : 1;
      if (there[i] == kDocumentEnd) return -1;
    }
    return 0;
  }

  const RetrievalIndex& index_;
  const RetrievalHeader& header_;
  absl::Status status_;
};

RetrievalIndex::~RetrievalIndex() { close(descriptor_); }

absl::StatusOr<std::unique_ptr<RetrievalIndex>> RetrievalIndex::Open(
    const std::filesystem::path& path) {
  // A FIFO would block without O_NONBLOCK.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    const std::string why = path.string() + ": " + std::strerror(errno);
    return errno == ENOENT ? NotFound(why) : InvalidArgument(why);
  }
  std::unique_ptr<RetrievalIndex> index(new RetrievalIndex(path, descriptor));
  const auto refuse = [&](const std::string& why) {
    return InvalidArgument(path.string() + ": " + why + " (tandem index build makes an index)");
  };
  struct stat status;
  if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) return refuse("is no file");
  const auto size = static_cast<uint64_t>(status.st_size);
  RetrievalHeader& header = index->header_;
  if (size < sizeof(header) || !index->Read(0, &header, sizeof(header)).ok() ||
      header.magic != kRetrievalMagic) {
    return refuse("is no retrieval index");
  }
  if (header.version != kRetrievalVersion) {
    return refuse("version " + std::to_string(header.version) + ", want " +
                  std::to_string(kRetrievalVersion));
  }
  if (header.num_tokens > kMostRetrievalTokens || header.num_places > header.num_tokens) {
    return refuse("the header is damaged");
  }
  const uint64_t want =
      sizeof(header) + header.num_tokens * sizeof(int32_t) + header.num_places * sizeof(uint32_t);
  if (size != want) {
    return refuse("has " + std::to_string(size) + " bytes, and its header promises " +
                  std::to_string(want));
  }
  return index;
}

absl::Status RetrievalIndex::Read(uint64_t offset, void* to, size_t size) const {
  auto* at = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t got = pread(descriptor_, at, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      return absl::DataLossError(path_.string() + ": " +
                                 (got == 0 ? "became shorter" : std::strerror(errno)));
    }
    at += got;
    size -= static_cast<size_t>(got);
    offset += static_cast<uint64_t>(got);
  }
  return absl::OkStatus();
}

absl::StatusOr<RetrievedText> RetrievalIndex::Find(std::span<const int32_t> context,
                                                   uint32_t max_depth, uint32_t vocabulary_size,
                                                   uint32_t max_nodes) const {
  constexpr double kShareInChain = 0.25;
  constexpr double kShareInTree = 1.0 / 16;
  Search search(*this);
  RetrievedText found;
  // If an end of the context stands in the corpus, shorter ends do too.
  uint32_t known = kLeastMatch - 1;
  uint32_t most = static_cast<uint32_t>(std::min<size_t>(context.size(), kMostMatch));
  Search::Range places = {0, 0};
  while (known < most) {
    // Most contexts match briefly or not at all.
    const uint32_t length = known < kLeastMatch ? kLeastMatch : known + (most - known + 1) / 2;
    const Search::Range there = search.PlacesOf(context.last(length));
    if (there.begin < there.end) {
      known = length;
      places = there;
    } else {
      most = length - 1;
    }
  }
  if (places.begin == places.end) {
    TANDEM_RETURN_IF_ERROR(search.status());
    return found;
  }
  found.match_length = known;
  const uint64_t count = places.end - places.begin;
  const size_t looked_at = std::min<uint64_t>(count, kMostPlaces);
  static_assert(kDocumentEnd < 0, "ends a continuation");
  std::vector<Continuation> copies(looked_at, {std::vector<int32_t>(max_depth)});
  for (size_t i = 0; i < looked_at; ++i) {
    search.TokensAt(search.PlaceAt(places.begin + i * count / looked_at) + known,
                    copies[i].token_ids);
  }
  TANDEM_RETURN_IF_ERROR(search.status());
  ContinuationTree tree = MergeContinuations(
      copies, {.max_depth = max_depth,
               .max_nodes = max_nodes,
               .least_share = max_nodes == 0 ? kShareInChain : kShareInTree,
               .end_id = static_cast<int32_t>(std::min<uint32_t>(vocabulary_size, INT32_MAX))});
  found.token_ids = std::move(tree.token_ids);
  if (max_nodes > 0) found.parents = std::move(tree.parents);
  return found;
}

}  // namespace tandem
