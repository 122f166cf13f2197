#include "services/router/drafting/probe_schedule.h"

#include <algorithm>
#include <utility>

namespace tandem {
namespace {

// Number of slots beyond the first that halves the share of the time for probes: what one slot is
// told, all slots know.
constexpr double kSharingSlots = 10;
// Credit at the start, and the largest that is saved up, in rounds' time. The first pays for the
// first probes of a new server. The second bounds what is lost at once by a server that had nothing
// to find out for long.
constexpr double kInitialCreditRounds = 2;
constexpr double kLargestCreditRounds = 8;

// Rounds with drafts before a reference round: at first, and at most after doubling with each
// reference round.
constexpr uint32_t kFirstReferenceGap = 8;
constexpr uint32_t kLongestReferenceGap = 64;
// Ratio of the rates with and without drafts above which no reference is needed: the answer does
// not hang on how well plain rounds are known.
constexpr double kClearGain = 1.15;

// Rounds between looks at unsure costs, at most: the gap doubles with each look and begins again at
// one round after a probe.
constexpr uint32_t kLongestCostGap = 64;

// Rounds from one acceptance probe to the next: at first, after a probe that was worth its time,
// and at most after doubling with each probe that was not.
constexpr uint32_t kFirstGap = 16;
constexpr uint32_t kShortestGap = 2;
constexpr uint32_t kLongestGap = 128;
// Where nothing was worth its time for long, the gap is one part in this many of that time, and at
// most the second number of rounds: drafts that pay again are found out within an eighth of the
// time for which they did not.
constexpr uint32_t kBarrenRoundsPerGap = 8;
constexpr uint32_t kLongestBarrenGap = 512;
// Probes in a row that may follow soon on successful ones while no plan drafts. Where drafts would
// earn about their cost, but not the margin, each probe is worth its time and none tells anything
// new. One more is granted with every kLongestGap rounds.
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

bool ProbeSchedule::ReferenceIsDue(double rate, double plain_rate) {
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
