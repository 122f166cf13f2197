#include "services/router/acceptance_estimate.h"

#include <algorithm>
#include <cmath>

namespace tandem {
namespace {

// Before anything was judged, as heavy as a few blocks.
constexpr double kUnknown = 0.6;
constexpr double kUnknownWeight = 8;
// Rounds that the estimates remember.
constexpr double kPriorMemory = 400;
constexpr double kMemory = 48;
constexpr double kRecentMemory = 6;
// Standard deviations of the last few rounds from the level before that mean another level.
constexpr double kChange = 3;
// Tests that the prior counts for.
constexpr double kLevelWeight = 8;
constexpr double kPositionWeight = 12;
// Factor by which positions may differ where nothing of the sequence's own says so.
constexpr double kMostShape = 1.5;
// While a sequence does not draft its text goes on, and the next block that is judged says more than
// those before: they fade with the rounds in between, but not below the weight of a few.
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
