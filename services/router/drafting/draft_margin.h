// The gain that drafts must promise before they are tried at all.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_DRAFT_MARGIN_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_DRAFT_MARGIN_H_

#include <cmath>
#include <cstddef>

namespace tandem {

// Smallest gain of one slot's drafts, as a share of plain decoding's rate. Measured costs have
// errors of about this size, and drafts are not tried for a gain that may be noise.
inline constexpr double kSingleSlotMargin = 0.01;
// Each doubling of the number of slots adds this share of plain decoding's rate. Many slots keep
// the machine busy without drafts, so drafts can gain only little. The change to drafts then also
// means a catch-up of all slots.
inline constexpr double kMarginOfDoubling = 0.005;

// Returns the gain that drafts must promise in a round of `num_slots` >= 1 slots, as a share of
// plain decoding's rate: 0.01 with one slot, 0.035 with 32.
inline double DraftMargin(size_t num_slots) {
  return kSingleSlotMargin + kMarginOfDoubling * std::log2(static_cast<double>(num_slots));
}

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_DRAFT_MARGIN_H_
