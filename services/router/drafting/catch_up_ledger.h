// Books of what catching up the drafter cost, and whether the drafts after it earned that back.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_CATCH_UP_LEDGER_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_CATCH_UP_LEDGER_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "services/router/drafting/draft_plan.h"

namespace tandem {

// A drafter that lags is caught up on the belief that its drafts will earn the time back. Where
// drafts end before they earned half of it, the belief was wrong, and the next catch-up has to
// promise twice the gain. One that is earned back halves what the next has to promise. What was
// learned this way fades, and is kept apart by number of slots.
//
// All methods but RequiredGain are called at most once for a planned round.
class CatchUpLedger {
 public:
  CatchUpLedger();

  // Returns the share of plain decoding's rate that a plan with catch-ups has to gain in a round
  // of `num_slots` >= 1 slots. The result lies between DraftMargin of the number and 0.2.
  double RequiredGain(size_t num_slots) const { return margins_[Bucket(num_slots)]; }

  // The cohort's round spends `seconds` >= 0 on catch-ups. The cohort's drafts have to earn them.
  void Invest(uint32_t cohort, double seconds);

  // The cohort's round drafts: its tokens take `gained_seconds` less than in plain rounds. A
  // negative number is a loss.
  void OnDraftedRound(uint32_t cohort, size_t num_slots, double gained_seconds);
  // The cohort's round drafts nothing but fixed lengths: the cohort's investment ends here.
  void OnPlainRound(uint32_t cohort, size_t num_slots);

 private:
  // Catch-ups whose drafts go on.
  struct Investment {
    double seconds = 0;
    double left = 0;  // seconds that drafts have not earned back yet
  };

  // Entry i is for 2^i to 2^(i + 1) - 1 slots; the last entry is for all larger numbers too.
  static constexpr size_t kNumMargins = 8;
  static size_t Bucket(size_t num_slots) {
    return std::min<size_t>(std::bit_width(num_slots), kNumMargins) - 1;
  }
  // Lets the margin for the number of slots fade by one round, and returns it.
  double& FadedMargin(size_t num_slots);

  std::array<double, kNumMargins> margins_;
  std::array<Investment, kMaxCohorts> investments_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_CATCH_UP_LEDGER_H_
