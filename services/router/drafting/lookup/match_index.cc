#include "services/router/drafting/lookup/match_index.h"

#include <algorithm>

namespace tandem {

namespace {

constexpr size_t kLeastHeads = 1 << 8;
// Places of a chain that are compared.
constexpr int kMaxPlaces = 32;

}  // namespace

uint32_t CommonEnd(std::span<const int32_t> a, std::span<const int32_t> b, uint32_t most) {
  const size_t longest = std::min({a.size(), b.size(), size_t{most}});
  size_t length = 0;
  while (length < longest && a[a.size() - 1 - length] == b[b.size() - 1 - length]) ++length;
  return static_cast<uint32_t>(length);
}

size_t MatchIndex::HeadOf(int32_t before, int32_t last) const {
  // Fibonacci hashing (Knuth, The Art of Computer Programming, volume 3, section 6.4).
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15;
  const uint64_t pair =
      uint64_t{static_cast<uint32_t>(before)} << 32 | uint64_t{static_cast<uint32_t>(last)};
  return ((pair ^ pair >> 29) * kMultiplier >> 32) & (heads_.size() - 1);
}

void MatchIndex::Extend(std::span<const int32_t> text, size_t most) {
  const size_t end = std::min(text.size(), size_ + most);
  if (heads_.empty() && !text.empty()) {
    size_t size = kLeastHeads;
    while (size < std::max(text.size(), expected_tokens_) && size < kWindow) size *= 2;
    heads_.assign(size, 0);
  }
  for (; size_ < end; ++size_) {
    const size_t next = size_ + 1;  // the place after token size_
    if (next < kLeastLength) continue;
    if (previous_.size() < kWindow && previous_.size() <= next) {
      const size_t size = std::max<size_t>(2 * previous_.size(), next + 1);
      previous_.reserve(std::min<size_t>(size, kWindow));  // not more, as a vector would
      previous_.resize(std::min<size_t>(size, kWindow));
    }
    uint32_t& head = heads_[HeadOf(text[size_ - 1], text[size_])];
    previous_[next % kWindow] = head;
    head = static_cast<uint32_t>(next);
  }
}

template <typename Visit>
void MatchIndex::Walk(std::span<const int32_t> text, std::span<const int32_t> context, size_t end,
                      const Visit& visit) const {
  if (heads_.empty() || context.size() < kLeastLength) return;
  const size_t oldest = size_ + 1 > kWindow ? size_ + 1 - kWindow : 0;
  uint32_t next = heads_[HeadOf(context[context.size() - 2], context[context.size() - 1])];
  for (int place = 0; place < kMaxPlaces && next > oldest; ++place) {
    if (next < end) {
      const uint32_t length = CommonEnd(text.first(next), context, kMostLength);
      if (length >= kLeastLength && !visit(TextMatch{next, length})) return;
    }
    const uint32_t before = previous_[next % kWindow];
    if (before >= next) break;
    next = before;
  }
}

TextMatch MatchIndex::Longest(std::span<const int32_t> text, std::span<const int32_t> context,
                              size_t end) const {
  TextMatch best;
  Walk(text, context, end, [&](const TextMatch& place) {
    if (place.length > best.length) best = place;
    return best.length < kMostLength;
  });
  return best;
}

std::vector<TextMatch> MatchIndex::Matches(std::span<const int32_t> text,
                                           std::span<const int32_t> context, size_t end,
                                           size_t most) const {
  std::vector<TextMatch> best;
  Walk(text, context, end, [&](const TextMatch& place) {
    const auto after = std::find_if(best.begin(), best.end(), [&](const TextMatch& other) {
      return other.length < place.length;
    });
    best.insert(after, place);
    if (best.size() > most) best.pop_back();
    return best.size() < most || best.back().length < kMostLength;
  });
  return best;
}

}  // namespace tandem
