#include "services/router/drafting/acceptance_estimate.h"

#include <algorithm>
#include <cmath>

namespace tandem {
namespace {

// ---------------------------------------------------------------- the prior of a mode

// The acceptance that is assumed before anything was judged, and its weight as a number of tests.
// About two judged blocks outweigh this assumption.
constexpr double kUnknown = 0.6;
constexpr double kUnknownWeight = 8;
// Number of judged blocks that the prior of a mode remembers. Many requests fit into this memory.
constexpr double kPriorMemory = 400;

// ---------------------------------------------------------------- the estimate of a sequence

// Number of judged blocks that a sequence remembers, and that count as its recent blocks.
constexpr double kMemory = 48;
constexpr double kRecentMemory = 6;
// The level of a sequence has changed if its recent blocks differ from the earlier level by this
// many standard deviations.
constexpr double kChange = 3;
// Weight, as a number of tests, of the mode's prior in the level of a sequence, and of that level
// in the chance at one position. A few blocks outweigh either.
constexpr double kLevelWeight = 8;
constexpr double kPositionWeight = 12;
// Largest factor between the chance at a position and the level, while the sequence has no tests of
// its own at that position.
constexpr double kMostShape = 1.5;
// While a sequence does not draft, its text goes on. The next judged block is then more informative
// than earlier blocks. Over the first number of rounds without a draft, the weight of the earlier
// blocks fades, but not below the weight of the second number of blocks.
constexpr double kIdleMemory = 32;
constexpr double kStaleMemory = 4;

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

void AcceptanceEstimate::Observe(uint32_t num_drafted, uint32_t num_accepted) {
  if (num_drafted == 0) {
    ++rounds_without_draft_;
    return;
  }
  const double idle = std::pow(1 - 1 / kIdleMemory, rounds_without_draft_);
  counts_.Fade((1 - 1 / kMemory) * std::max(idle, kStaleMemory / kMemory));
  counts_.Add(num_drafted, num_accepted);
  recent_tested_ =
      (1 - 1 / kRecentMemory) * recent_tested_ + std::min(num_drafted, num_accepted + 1);
  recent_accepted_ = (1 - 1 / kRecentMemory) * recent_accepted_ + num_accepted;
  rounds_without_draft_ = 0;
  NoticeChange();
}

void AcceptanceEstimate::NoticeChange() {
  const double tested = counts_.total_tested();
  if (tested < 2 * recent_tested_) return;
  const double level = std::clamp(counts_.total_accepted() / tested, 0.05, 0.95);
  // Weights that fade by a constant factor per round have a sum that is about twice the sum of
  // their squares.
  const double error = std::sqrt(level * (1 - level) / recent_tested_ / 2);
  if (std::abs(recent_accepted_ / recent_tested_ - level) <= kChange * error) return;
  counts_.Fade(recent_tested_ / tested);
}

double AcceptanceEstimate::Conditional(uint32_t position) const {
  // Start from the level of this sequence over all positions, then add the position's own counts. A
  // position that was hardly ever reached follows the level, with the shape over positions that the
  // server's requests have.
  const double mean = prior_->Mean();
  const double level =
      (counts_.total_accepted() + kLevelWeight * mean) / (counts_.total_tested() + kLevelWeight);
  const double shape = std::clamp(prior_->Conditional(position) / mean, 1 / kMostShape, kMostShape);
  const double expected = std::min(0.999, level * shape);
  return (counts_.accepted(position) + kPositionWeight * expected) /
         (counts_.tested(position) + kPositionWeight);
}

}  // namespace tandem
