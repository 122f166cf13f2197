#include "services/router/drafting/lookup/recycling_lookup.h"

#include <algorithm>

namespace tandem {
namespace {

// How likely a favorite is by its rank, before anything was measured. The measured chances decide
// about the tree in the end (SortByChance); these only bound how many tokens are looked at.
constexpr std::array<double, RecyclingLookup::kSuccessors> kWeights = {0.5,  0.16, 0.09, 0.06,
                                                                       0.04, 0.03, 0.03, 0.02};

// A token that may come next.
struct Offer {
  int32_t token_id;
  int32_t parent;
  uint32_t depth;
  double weight;
};

}  // namespace

size_t RecyclingLookup::IndexOf(int32_t token_id) {
  // Fibonacci hashing (Knuth, The Art of Computer Programming, volume 3, section 6.4).
  static_assert(kEntries == size_t{1} << 12);
  return static_cast<uint32_t>(token_id) * 2654435769U >> (32 - 12);
}

void RecyclingLookup::Learn(int32_t token_id, std::span<const int32_t> successors) {
  if (entries_.empty()) entries_.resize(kEntries);
  Entry& entry = entries_[IndexOf(token_id)];
  entry.token_id = token_id;
  entry.successors.fill(-1);
  std::copy_n(successors.begin(), std::min<size_t>(successors.size(), kSuccessors),
              entry.successors.begin());
}

std::span<const int32_t> RecyclingLookup::SuccessorsOf(int32_t token_id) const {
  if (entries_.empty()) return {};
  const Entry& entry = entries_[IndexOf(token_id)];
  if (entry.token_id != token_id) return {};
  const auto end = std::find(entry.successors.begin(), entry.successors.end(), -1);
  return {entry.successors.begin(), end};
}

LookupDraft RecyclingLookup::Find(std::span<const int32_t> tokens,
                                  const LookupLimits& limits) const {
  LookupDraft draft;
  draft.drafter = Drafter::kRecycling;
  if (tokens.empty()) return draft;
  draft.match_length = 1;
  const size_t most_siblings = limits.nodes == 0 ? 1 : kSuccessors;
  const size_t most_tokens = limits.nodes == 0 ? limits.depth : 2 * size_t{limits.nodes};
  std::vector<Offer> offers;  // a heap: the likeliest is the first
  const auto is_less = [](const Offer& a, const Offer& b) { return a.weight < b.weight; };
  const auto offer = [&](int32_t token_id, int32_t parent, uint32_t depth, double weight) {
    if (depth == limits.depth) return;
    const std::span<const int32_t> successors = SuccessorsOf(token_id);
    for (size_t rank = 0; rank < std::min(successors.size(), most_siblings); ++rank) {
      offers.push_back({successors[rank], parent, depth + 1, weight * kWeights[rank]});
      std::push_heap(offers.begin(), offers.end(), is_less);
    }
  };
  offer(tokens.back(), -1, 0, 1);
  while (!offers.empty() && draft.token_ids.size() < most_tokens) {
    std::pop_heap(offers.begin(), offers.end(), is_less);
    const Offer best = offers.back();
    offers.pop_back();
    const auto index = static_cast<int32_t>(draft.token_ids.size());
    draft.token_ids.push_back(best.token_id);
    draft.parents.push_back(best.parent);
    offer(best.token_id, index, best.depth, best.weight);
  }
  draft.Limit(limits);
  return draft;
}

}  // namespace tandem
