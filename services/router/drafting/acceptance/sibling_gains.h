// What siblings of a draft model's tokens are likely to gain. A sibling stands beside the chain's
// token at a position, for the case that this token is rejected. The chain does not go on after it,
// so it takes no pass of the draft model, only a row of the verifier.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_ACCEPTANCE_SIBLING_GAINS_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_ACCEPTANCE_SIBLING_GAINS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "services/router/drafting/acceptance/acceptance_estimate.h"

namespace tandem {

struct SiblingGain {
  uint32_t position;  // in the chain, from 0
  double gain;        // P(the sibling is accepted)
};

// Returns the `most` siblings that gain most, in descending order. `gains[i]`: P(the chain's token
// i is accepted), not increasing. No sibling gains more than the chain's token at its position, or
// than the sibling before it there. Siblings that gain less than `least_gain` are left out.
//
// Any number of first siblings is the best set of this size, because each gain follows from
// position and rank alone: this is the dynamic program of Sequoia (Chen et al. 2024, arXiv
// 2402.12374) for trees in which only the chain has children.
std::vector<SiblingGain> RankSiblings(const AcceptanceEstimate& acceptance,
                                      std::span<const double> gains, size_t most,
                                      double least_gain);

// Returns how many siblings are drawn at each position: the first `count` of those at positions
// before `length`.
std::vector<uint32_t> SiblingsByPosition(std::span<const SiblingGain> siblings, uint32_t length,
                                         uint32_t count);

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_ACCEPTANCE_SIBLING_GAINS_H_
