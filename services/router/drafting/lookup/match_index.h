// Finds earlier places in a text where the same tokens stand: hash chains, as compressors of the
// LZ77 family use them (Ziv and Lempel 1977; RFC 1951, section 4).
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_LOOKUP_MATCH_INDEX_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_LOOKUP_MATCH_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tandem {

// A place in the text.
struct TextMatch {
  uint32_t next = 0;    // index of the token that follows the place
  uint32_t length = 0;  // tokens before it that agree; 0: there is no such place
};

// An index of a text that grows. The text itself belongs to the caller and is given to each call.
// The index covers the last kWindow tokens, so its memory is bounded: at most 16 bytes for each
// token, and 512 KiB.
class MatchIndex {
 public:
  static constexpr uint32_t kWindow = 1 << 16;
  // Shortest match that is found.
  static constexpr uint32_t kLeastLength = 2;
  // Longest match that is counted.
  static constexpr uint32_t kMostLength = 64;

  // `expected_tokens`: length that the text is likely to reach. Memory is taken when the first
  // tokens are entered.
  explicit MatchIndex(size_t expected_tokens) : expected_tokens_(expected_tokens) {}

  // Enters tokens of the text that are not in the index yet, at most `most` of them. The time is in
  // proportion to their number. PRECOND: earlier calls had a prefix of the text.
  void Extend(std::span<const int32_t> text, size_t most);
  // Number of tokens of the text that were entered.
  size_t size() const { return size_; }

  // Finds the place in the text, before its token `end`, that agrees longest with `context`. Of
  // places that agree equally long, the newest counts. A bounded number of places is compared.
  // `end` is at most size().
  TextMatch Longest(std::span<const int32_t> text, std::span<const int32_t> context,
                    size_t end) const;

  // Finds up to `most` places in the same way: those that agree longest, and of equals the newest.
  std::vector<TextMatch> Matches(std::span<const int32_t> text, std::span<const int32_t> context,
                                 size_t end, size_t most) const;

  size_t memory_bytes() const {
    return (heads_.capacity() + previous_.capacity()) * sizeof(uint32_t);
  }

 private:
  // Calls visit(place) for places of the chain, the newest first, until it returns false.
  template <typename Visit>
  void Walk(std::span<const int32_t> text, std::span<const int32_t> context, size_t end,
            const Visit& visit) const;
  // Which chain holds the places after these two tokens.
  size_t HeadOf(int32_t before, int32_t last) const;

  // Index 0 stands for "none", so a place is stored as the index of the token that follows it.
  size_t expected_tokens_;
  std::vector<uint32_t> heads_;     // by hash of two tokens: the newest place after them
  std::vector<uint32_t> previous_;  // by place modulo its size: the place before it in its chain
  size_t size_ = 0;
};

// Number of tokens at the ends of both that agree, at most `most`.
uint32_t CommonEnd(std::span<const int32_t> a, std::span<const int32_t> b, uint32_t most);

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_LOOKUP_MATCH_INDEX_H_
