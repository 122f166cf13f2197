#include "services/router/acceptance_estimate.h"

#include <algorithm>
#include <cmath>

namespace tandem {
namespace {

// Before anything was judged: one of two, as heavy as a block or two.
constexpr double kUnknown = 0.6;
constexpr double kUnknownWeight = 8;
// Rounds that the estimates remember.
constexpr double kPriorMemory = 400;
constexpr double kMemory = 24;
// Tests that the prior counts for.
constexpr double kLevelWeight = 4;
constexpr double kPositionWeight = 6;
// While a sequence does not draft its text goes on, and what was counted says less about what comes;
// it never counts for fewer rounds than this, or a slot that cannot draft would be tried for ever.
constexpr double kIdleMemory = 12;
constexpr double kStaleMemory = 2;

}  // namespace

void AcceptanceCounts::Fade(double factor) {
  for (double& count : tested_) count *= factor;
  for (double& count : accepted_) count *= factor;
  total_tested_ *= factor;
  total_accepted_ *= factor;
}

void AcceptanceCounts::Add(uint32_t num_drafted, uint32_t num_accepted) {
  const uint32_t num_tested = std::min(num_drafted, num_accepted + 1);
  for (uint32_t i = 0; i < num_tested; ++i) tested_[Index(i)] += 1;
  for (uint32_t i = 0; i < num_accepted; ++i) accepted_[Index(i)] += 1;
  total_tested_ += num_tested;
  total_accepted_ += num_accepted;
}

void AcceptancePrior::Observe(uint32_t num_drafted, uint32_t num_accepted) {
  if (num_drafted == 0) return;
  counts_.Fade(1 - 1 / kPriorMemory);
  counts_.Add(num_drafted, num_accepted);
}

double AcceptancePrior::Mean() const {
  return (counts_.total_accepted() + kUnknownWeight * kUnknown) /
         (counts_.total_tested() + kUnknownWeight);
}

double AcceptancePrior::Conditional(uint32_t position) const {
  return (counts_.accepted(position) + kUnknownWeight * Mean()) /
         (counts_.tested(position) + kUnknownWeight);
}

double AcceptanceEstimate::Freshness() const {
  if (rounds_without_draft_ == 0) return 1;
  return std::max(std::pow(1 - 1 / kIdleMemory, rounds_without_draft_), kStaleMemory / kMemory);
}

void AcceptanceEstimate::Observe(uint32_t num_drafted, uint32_t num_accepted) {
  if (num_drafted == 0) {
    ++rounds_without_draft_;
    return;
  }
  counts_.Fade((1 - 1 / kMemory) * Freshness());
  counts_.Add(num_drafted, num_accepted);
  rounds_without_draft_ = 0;
}

double AcceptanceEstimate::Conditional(uint32_t position) const {
  // The level of this sequence over all positions, then the position's own counts: one that was
  // hardly ever reached follows the level, in the shape that the server's requests have.
  const double fresh = Freshness();
  const double mean = prior_->Mean();
  const double level = (fresh * counts_.total_accepted() + kLevelWeight * mean) /
                       (fresh * counts_.total_tested() + kLevelWeight);
  const double expected = std::min(0.999, level * prior_->Conditional(position) / mean);
  return (fresh * counts_.accepted(position) + kPositionWeight * expected) /
         (fresh * counts_.tested(position) + kPositionWeight);
}

}  // namespace tandem
