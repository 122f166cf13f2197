#include "services/router/drafting/acceptance/acceptance_estimate.h"

#include <algorithm>
#include <cmath>

namespace tandem {
namespace {

// ---------------------------------------------------------------- the prior of a mode

// The acceptance that is assumed before anything was judged, and its weight as a number of tests.
// About two judged blocks outweigh this assumption.
constexpr double kUnknown = 0.6;
constexpr double kUnknownWeight = 8;
// The same for the second child of a token. The third child has half of it, and so on.
constexpr double kUnknownSibling = 0.15;
// Number of tests of siblings of one rank that are remembered.
constexpr double kSiblingMemory = 200;
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

std::vector<JudgedPosition> JudgedChain(uint32_t num_drafted, uint32_t num_accepted) {
  std::vector<JudgedPosition> positions(std::min(num_drafted, num_accepted + 1));
  for (uint32_t i = 0; i < num_accepted; ++i) positions[i].accepted = 0;
  return positions;
}

void AcceptanceCounts::Fade(double factor) {
  for (double& count : tested_) count *= factor;
  for (double& count : accepted_) count *= factor;
  total_tested_ *= factor;
  total_accepted_ *= factor;
}

void AcceptanceCounts::Add(std::span<const JudgedPosition> draft) {
  for (size_t i = 0; i < draft.size(); ++i) {
    const JudgedPosition& position = draft[i];
    const double accepted = position.accepted == 0 ? 1 : 0;
    tested_[Index(static_cast<uint32_t>(i))] += 1;
    accepted_[Index(static_cast<uint32_t>(i))] += accepted;
    total_tested_ += 1;
    total_accepted_ += accepted;
    for (uint32_t rank = 1; rank < position.num_children; ++rank) {
      const bool is_accepted = position.accepted == static_cast<int32_t>(rank);
      double& siblings_tested = siblings_tested_[RankIndex(rank)];
      double& siblings_accepted = siblings_accepted_[RankIndex(rank)];
      siblings_tested = (1 - 1 / kSiblingMemory) * siblings_tested + 1;
      siblings_accepted = (1 - 1 / kSiblingMemory) * siblings_accepted + (is_accepted ? 1 : 0);
    }
  }
}

void AcceptancePrior::Observe(std::span<const JudgedPosition> draft) {
  if (draft.empty()) return;
  counts_.Fade(1 - 1 / kPriorMemory);
  counts_.Add(draft);
}

double AcceptancePrior::Mean() const {
  return (counts_.total_accepted() + kUnknownWeight * kUnknown) /
         (counts_.total_tested() + kUnknownWeight);
}

double AcceptancePrior::Conditional(uint32_t position) const {
  return (counts_.accepted(position) + kUnknownWeight * Mean()) /
         (counts_.tested(position) + kUnknownWeight);
}

double AcceptancePrior::OfSibling(uint32_t rank) const {
  const double unknown = kUnknownSibling / rank;
  return (counts_.siblings_accepted(rank) + kUnknownWeight * unknown) /
         (counts_.siblings_tested(rank) + kUnknownWeight);
}

void AcceptanceEstimate::Observe(std::span<const JudgedPosition> draft) {
  if (draft.empty()) {
    ++rounds_without_draft_;
    return;
  }
  const double idle = std::pow(1 - 1 / kIdleMemory, rounds_without_draft_);
  counts_.Fade((1 - 1 / kMemory) * std::max(idle, kStaleMemory / kMemory));
  counts_.Add(draft);
  const auto num_accepted =
      std::count_if(draft.begin(), draft.end(), [](const auto& at) { return at.accepted == 0; });
  recent_tested_ = (1 - 1 / kRecentMemory) * recent_tested_ + static_cast<double>(draft.size());
  recent_accepted_ = (1 - 1 / kRecentMemory) * recent_accepted_ + static_cast<double>(num_accepted);
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

double AcceptanceEstimate::OfSibling(uint32_t rank) const {
  return (counts_.siblings_accepted(rank) + kLevelWeight * prior_->OfSibling(rank)) /
         (counts_.siblings_tested(rank) + kLevelWeight);
}

}  // namespace tandem
