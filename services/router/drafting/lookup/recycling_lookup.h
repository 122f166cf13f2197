// The recycling drafter: the target's own favorites after each token (Luo et al. 2024, "Turning
// Trash into Treasure: Accelerating Inference of Large Language Models with Token Recycling", arXiv
// 2408.08696).
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_LOOKUP_RECYCLING_LOOKUP_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_LOOKUP_RECYCLING_LOOKUP_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "services/router/drafting/lookup/lookup_draft.h"

namespace tandem {

// A table of one request: what the target expected after a token when the token was committed last.
// The verifier sends its favorites with each verdict, for committed tokens only. A draft is the
// tree of the favorites of favorites.
class RecyclingLookup {
 public:
  // Favorites of a token that are asked for and kept.
  static constexpr uint32_t kSuccessors = 8;
  // Tokens that have an entry. A new token takes the place of another one with the same hash, so
  // the memory is bounded: 144 KiB.
  static constexpr size_t kEntries = 4096;

  // Keeps the favorites after a committed token, the most likely one first.
  void Learn(int32_t token_id, std::span<const int32_t> successors);

  // Drafts tokens after `tokens`. Returns a draft without tokens if nothing is known of the last
  // one.
  LookupDraft Find(std::span<const int32_t> tokens, const LookupLimits& limits) const;

  size_t memory_bytes() const { return entries_.capacity() * sizeof(Entry); }

 private:
  struct Entry {
    int32_t token_id = -1;
    std::array<int32_t, kSuccessors> successors;  // -1: there are no more
  };

  static size_t IndexOf(int32_t token_id);
  // Returns the favorites after a token; empty: nothing is known.
  std::span<const int32_t> SuccessorsOf(int32_t token_id) const;

  std::vector<Entry> entries_;  // empty until the first token is learned
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_LOOKUP_RECYCLING_LOOKUP_H_
