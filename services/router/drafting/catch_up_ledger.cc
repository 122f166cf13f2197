#include "services/router/drafting/catch_up_ledger.h"

namespace tandem {
namespace {

// Largest gain that a catch-up ever has to promise, as a share of plain decoding's rate. Drafts
// that promise more are tried even after many catch-ups that did not pay.
constexpr double kLargestMargin = 0.2;
// Number of rounds over which a raised margin fades. On a machine with other tenants, costs rise
// and fall within a few hundred rounds. The margin therefore outlasts several such changes.
constexpr double kMarginMemoryRounds = 4000;

}  // namespace

CatchUpLedger::CatchUpLedger() {
  for (size_t i = 0; i < kNumMargins; ++i) margins_[i] = DraftMargin(size_t{1} << i);
}

void CatchUpLedger::Invest(uint32_t cohort, double seconds) {
  investments_[cohort].seconds += seconds;
  investments_[cohort].left += seconds;
}

double& CatchUpLedger::FadedMargin(size_t num_slots) {
  double& margin = margins_[Bucket(num_slots)];
  margin += (DraftMargin(num_slots) - margin) / kMarginMemoryRounds;
  return margin;
}

void CatchUpLedger::OnDraftedRound(uint32_t cohort, size_t num_slots, double gained_seconds) {
  double& margin = FadedMargin(num_slots);
  Investment& investment = investments_[cohort];
  if (investment.seconds == 0) return;
  investment.left -= gained_seconds;
  if (investment.left > 0) return;
  margin = std::max(margin / 2, DraftMargin(num_slots));
  investment = {};
}

void CatchUpLedger::OnPlainRound(uint32_t cohort, size_t num_slots) {
  double& margin = FadedMargin(num_slots);
  Investment& investment = investments_[cohort];
  if (investment.seconds == 0) return;
  if (investment.left > investment.seconds / 2) margin = std::min(2 * margin, kLargestMargin);
  investment = {};
}

}  // namespace tandem
