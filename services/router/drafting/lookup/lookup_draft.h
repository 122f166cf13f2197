// Draft tokens that were found, and not drawn from a distribution.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_LOOKUP_LOOKUP_DRAFT_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_LOOKUP_LOOKUP_DRAFT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "services/router/drafting/acceptance/acceptance_estimate.h"
#include "services/router/drafting/drafter_set.h"
#include "services/router/drafting/self/chance_calibration.h"

namespace tandem {

// What a row of the verifier costs before that was measured, in tokens of plain decoding.
inline constexpr double kGuessedRowCost = 0.03;

// How large a draft may be. A number alone stands for a chain.
struct LookupLimits {
  LookupLimits(uint32_t most_depth, uint32_t most_nodes = 0)  // NOLINT: a number is a limit
      : depth(most_depth), nodes(most_nodes) {}
  uint32_t depth;                     // tokens on the longest path
  uint32_t nodes;                     // tokens of a tree; 0: a chain
  double row_cost = kGuessedRowCost;  // cost of a row, in tokens of plain decoding
};

struct LookupDraft {
  Drafter drafter = Drafter::kSuffix;  // where it was found
  std::vector<int32_t> token_ids;      // tokens that continue the committed ones; empty: none found
  // Empty: the tokens are a chain. Otherwise parents[i] < i is the token before token i, and -1
  // stands for the committed tokens. Siblings are in the order in which they are expected.
  std::vector<int32_t> parents = {};
  uint32_t match_length = 0;  // tokens before it that agree with the place where it was found
  // [i]: P(token i is accepted). Set by SortByChance; not increasing until PutPathsTogether.
  std::vector<double> chances = {};
  // [i]: P(token i | its parent) as the drafter states it. Empty: it states nothing.
  std::vector<float> beliefs = {};

  int32_t ParentOf(size_t token) const {
    return parents.empty() ? static_cast<int32_t>(token) - 1 : parents[token];
  }
  // Keeps the first tokens. The rest of a tree is a tree, or a chain.
  void Keep(size_t num_tokens);
  // Keeps the first child of each token on the way down.
  void KeepChain();
  // Puts the first child of each token right after it. If the expected path is accepted, its rows
  // are where they must be, and none is moved.
  void PutPathsTogether();
  // Drops what is deeper than the limits allow, and makes a chain of the draft if they allow no
  // tree. The number of tokens of a tree is not limited: SortByChance comes first.
  void Limit(const LookupLimits& limits);
};

// Returns the part of a draft that follows `token_ids`, its first tokens on some path. Empty: no
// path of the draft begins with them.
LookupDraft Descend(const LookupDraft& draft, std::span<const int32_t> token_ids);

// Sorts the tokens of a draft by their chances of being accepted, and states the chances. Any
// number of first tokens is then the best draft of this size. Siblings keep their order.
void SortByChance(const AcceptanceEstimate& acceptance, LookupDraft* draft);
// The same for a draft with beliefs.
void SortByBelief(const ChanceCalibration& calibration, LookupDraft* draft);

// Drafts with longer matches are accepted more often. Acceptance is counted by class.
inline constexpr size_t kNumMatchClasses = 4;
inline size_t MatchClass(uint32_t match_length) {
  if (match_length <= 3) return 0;
  if (match_length <= 6) return 1;
  return match_length <= 16 ? 2 : 3;
}

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_LOOKUP_LOOKUP_DRAFT_H_
