#include "services/router/drafting/probe_schedule.h"

#include <algorithm>
#include <utility>

namespace tandem {
namespace {

// Number of slots beyond the first that halves the share of the time for probes. All slots benefit
// from what one slot finds out.
constexpr double kSharingSlots = 10;
// Credit at the start, and largest credit that can be saved up, in times of a round. The first one
// pays for the first probes of a new server. The second one limits the loss at one time on a server
// that had nothing to find out for long.
constexpr double kInitialCreditRounds = 2;
constexpr double kLargestCreditRounds = 8;

// Number of rounds with drafts before a reference round: the first gap, and the largest gap. Each
// reference round doubles the gap.
constexpr uint32_t kFirstReferenceGap = 8;
constexpr uint32_t kLongestReferenceGap = 64;
// Number of reference rounds after a cost jumped. So many measurements below the expected cost are
// a new level (OutlierRun).
constexpr uint32_t kReferencesOfNewLevel = 2;
// No reference round is needed if the rate with drafts divided by the rate without drafts is above
// this number. The answer does not depend on the accuracy of the plain rate then.
constexpr double kClearGain = 1.15;

// Largest number of rounds between looks at uncertain costs. The gap doubles with each look, and is
// one round again after a probe.
constexpr uint32_t kLongestCostGap = 64;

// Number of rounds from one acceptance probe to the next: the first gap, the gap after a probe that
// was worth its time, and the largest gap. Each other probe doubles the gap.
constexpr uint32_t kFirstGap = 16;
constexpr uint32_t kShortestGap = 2;
constexpr uint32_t kLongestGap = 128;
// If no probe and no draft was worth its time for long, the gap is that time divided by the first
// number, but at most the second number of rounds. When drafts begin to pay again, this is noticed
// within an eighth of the time for which they did not pay.
constexpr uint32_t kBarrenRoundsPerGap = 8;
constexpr uint32_t kLongestBarrenGap = 512;
// Number of consecutive probes that may follow soon after successful probes while no plan drafts.
// If drafts would earn about their cost but not the margin, each probe is worth its time, and none
// of them gives new information. One more such probe is allowed every kLongestGap rounds.
constexpr uint32_t kMostQuickProbes = 8;

}  // namespace

ProbeSchedule::ProbeSchedule(double budget)
    : budget_(budget),
      reference_gap_(kFirstReferenceGap),
      acceptance_gap_(kFirstGap),
      quick_probes_(kMostQuickProbes) {}

void ProbeSchedule::PayIn(size_t num_slots, double round_seconds, double decoding_seconds) {
  if (!std::exchange(has_paid_in_, true)) {
    credit_seconds_ = kInitialCreditRounds * decoding_seconds;
  }
  const double share = budget_ / (1 + (static_cast<double>(num_slots) - 1) / kSharingSlots);
  credit_seconds_ = std::min(credit_seconds_ + share * round_seconds,
                             std::max(credit_seconds_, kLargestCreditRounds * decoding_seconds));
}

bool ProbeSchedule::Spend(double seconds) {
  if (seconds > credit_seconds_) return false;
  credit_seconds_ -= seconds;
  return true;
}

void ProbeSchedule::OnPlainPlan() {
  rounds_since_plain_ = 0;
  reference_gap_ = std::max(reference_gap_ / 2, kFirstReferenceGap);
}

void ProbeSchedule::OnNewLevel() {
  cost_gap_ = 1;
  references_due_ = kReferencesOfNewLevel + 1;  // they follow the next round with drafts
}

bool ProbeSchedule::ReferenceIsDue(double rate, double plain_rate) {
  if (references_due_ > 0 && references_due_-- <= kReferencesOfNewLevel) {
    rounds_since_plain_ = 0;
    return true;
  }
  if (++rounds_since_plain_ < reference_gap_) return false;
  if (rate > kClearGain * plain_rate) return false;
  rounds_since_plain_ = 0;
  reference_gap_ = std::min(2 * reference_gap_, kLongestReferenceGap);
  return true;
}

bool ProbeSchedule::CostProbeIsDue() {
  if (++rounds_since_cost_look_ < cost_gap_) return false;
  rounds_since_cost_look_ = 0;
  cost_gap_ = std::min(2 * cost_gap_, kLongestCostGap);
  return true;
}

bool ProbeSchedule::BuyCostProbe(double seconds) {
  if (!Spend(seconds)) return false;
  cost_gap_ = 1;
  return true;
}

bool ProbeSchedule::AcceptanceProbeIsDue(bool some_draft, bool some_idle, bool must_wait) {
  if (some_draft) {
    barren_rounds_ = 0;
    quick_probes_ = kMostQuickProbes;
    acceptance_gap_ = std::min(acceptance_gap_, some_idle ? kLongestGap : kFirstGap);
  }
  if (!some_idle) {
    if (some_draft) rounds_since_acceptance_probe_ = 0;
    return false;
  }
  barren_rounds_ = std::min(barren_rounds_ + 1, kBarrenRoundsPerGap * kLongestBarrenGap);
  if (++rounds_to_quick_probe_ == kLongestGap) {
    rounds_to_quick_probe_ = 0;
    quick_probes_ = std::min(quick_probes_ + 1, kMostQuickProbes);
  }
  if (++rounds_since_acceptance_probe_ < acceptance_gap_ || must_wait) return false;
  rounds_since_acceptance_probe_ = 0;
  return true;
}

bool ProbeSchedule::BuyAcceptanceProbe(uint32_t cohort, const AcceptanceProbe& probe) {
  if (!Spend(probe.seconds)) return false;
  probes_[cohort] = probe;
  return true;
}

void ProbeSchedule::OnJudged(uint64_t serial, uint32_t num_drafted, uint32_t num_accepted) {
  if (num_drafted == 0) return;
  for (std::optional<AcceptanceProbe>& probe : probes_) {
    if (!probe.has_value() || probe->serial != serial) continue;
    const double worth = num_accepted * probe->seconds_per_token;
    credit_seconds_ += worth;
    if (worth >= probe->seconds && quick_probes_ > 0) {
      --quick_probes_;
      acceptance_gap_ = kShortestGap;
      barren_rounds_ = 0;
    } else {
      acceptance_gap_ = std::min(
          2 * acceptance_gap_,
          std::clamp(barren_rounds_ / kBarrenRoundsPerGap, kLongestGap, kLongestBarrenGap));
    }
    probe.reset();
  }
}

}  // namespace tandem
