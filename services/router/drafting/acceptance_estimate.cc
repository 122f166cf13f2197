#include "services/router/drafting/acceptance_estimate.h"

#include <algorithm>
#include <cmath>

namespace tandem {
namespace {

// ---------------------------------------------------------------- the prior of a mode

// Acceptance that is believed before anything was judged, and the number of tests that this belief
// weighs: about two blocks overrule it.
constexpr double kUnknown = 0.6;
constexpr double kUnknownWeight = 8;
// Judged blocks that the prior of a mode remembers: enough for many requests.
constexpr double kPriorMemory = 400;

// ---------------------------------------------------------------- the estimate of a sequence

// Judged blocks that a sequence remembers, and that count as its recent ones.
constexpr double kMemory = 48;
constexpr double kRecentMemory = 6;
// Standard deviations by which the recent blocks must differ from the level before them to mean
// another level.
constexpr double kChange = 3;
// Number of tests that the mode's prior weighs in the level of a sequence, and that the level
// weighs in the chance at one position: a few blocks overrule either.
constexpr double kLevelWeight = 8;
constexpr double kPositionWeight = 12;
// Largest factor between the chance at a position and the level, where no test of the sequence's
// own says more.
constexpr double kMostShape = 1.5;
// While a sequence does not draft, its text goes on, and the next judged block says more than those
// before. Their weight fades over the first number of rounds without a draft, but not below the
// second number of blocks.
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
  // Weights that fade by a factor a round sum up to about twice what their squares do.
  const double error = std::sqrt(level * (1 - level) / recent_tested_ / 2);
  if (std::abs(recent_accepted_ / recent_tested_ - level) <= kChange * error) return;
  counts_.Fade(recent_tested_ / tested);
}

double AcceptanceEstimate::Conditional(uint32_t position) const {
  // The level of this sequence over all positions, then the position's own counts: one that was
  // hardly ever reached follows the level, in the shape that the server's requests have.
  const double mean = prior_->Mean();
  const double level =
      (counts_.total_accepted() + kLevelWeight * mean) / (counts_.total_tested() + kLevelWeight);
  const double shape = std::clamp(prior_->Conditional(position) / mean, 1 / kMostShape, kMostShape);
  const double expected = std::min(0.999, level * shape);
  return (counts_.accepted(position) + kPositionWeight * expected) /
         (counts_.tested(position) + kPositionWeight);
}

}  // namespace tandem
