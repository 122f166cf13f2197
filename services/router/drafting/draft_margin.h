// The gain that drafts must promise before they are tried at all.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_DRAFT_MARGIN_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_DRAFT_MARGIN_H_

#include <cmath>
#include <cstddef>

namespace tandem {

// Smallest gain of one slot's drafts, as a share of plain decoding's rate. Measured costs are off
// by about this much, and drafts are not tried for what may be noise.
inline constexpr double kSingleSlotMargin = 0.01;
// What each doubling of the number of slots adds, as a share of plain decoding's rate. Many slots
// keep the machine busy without drafts. Little is left to gain then, and the change to drafts is a
// catch-up of all of them.
inline constexpr double kMarginOfDoubling = 0.005;

// Returns the share of plain decoding's rate that drafts must be expected to gain in a round of
// `num_slots` >= 1 slots: 0.01 with one slot, 0.035 with 32.
inline double DraftMargin(size_t num_slots) {
  return kSingleSlotMargin + kMarginOfDoubling * std::log2(static_cast<double>(num_slots));
}

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_DRAFT_MARGIN_H_
