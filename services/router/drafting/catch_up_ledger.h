// Records the cost of catching up the drafter, and whether the later drafts earned it back.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_CATCH_UP_LEDGER_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_CATCH_UP_LEDGER_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "services/router/drafting/draft_plan.h"

namespace tandem {

// A drafter that lags is caught up because its drafts are expected to earn the time back. If
// drafting ends before the drafts have earned half of the time, the expectation was wrong, and the
// next catch-up must promise twice the gain. A catch-up that is earned back halves the gain that
// the next one must promise. These margins fade, and each range of slot numbers has its own.
//
// All methods except RequiredGain are called at most once for each planned round.
class CatchUpLedger {
 public:
  CatchUpLedger();

  // Returns the gain that a plan with catch-ups must promise in a round of `num_slots` >= 1 slots,
  // as a share of plain decoding's rate. The result is between DraftMargin(num_slots) and 0.2.
  double RequiredGain(size_t num_slots) const { return margins_[Bucket(num_slots)]; }

  // The cohort's round spends `seconds` >= 0 on catch-ups, which the cohort's drafts must earn
  // back.
  void Invest(uint32_t cohort, double seconds);

  // The cohort's round drafts. Its tokens take `gained_seconds` less than in plain rounds; a
  // negative number is a loss.
  void OnDraftedRound(uint32_t cohort, size_t num_slots, double gained_seconds);
  // The cohort's round has no drafts except fixed lengths. The cohort's investment ends here.
  void OnPlainRound(uint32_t cohort, size_t num_slots);

 private:
  // Catch-ups whose drafts still go on.
  struct Investment {
    double seconds = 0;
    double left = 0;  // seconds that drafts have not earned back yet
  };

  // Entry i is for 2^i to 2^(i + 1) - 1 slots. The last entry is also for all larger numbers.
  static constexpr size_t kNumMargins = 8;
  static size_t Bucket(size_t num_slots) {
    return std::min<size_t>(std::bit_width(num_slots), kNumMargins) - 1;
  }
  // Lets the margin for this number of slots fade by one round, and returns the margin.
  double& FadedMargin(size_t num_slots);

  std::array<double, kNumMargins> margins_;
  std::array<Investment, kMaxCohorts> investments_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_CATCH_UP_LEDGER_H_
