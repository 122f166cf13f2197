#include "services/router/engine/pod_room.h"

#include <algorithm>

namespace tandem {

double PodRoom::ShareLeft(uint32_t tokens) const {
  const int64_t slots_left = int64_t{num_slots} - num_open_slots - 1;
  const double slots = static_cast<double>(slots_left) / num_slots;
  if (page_tokens == 0) return slots;
  const double pages =
      static_cast<double>(num_free_pages - PagesOf(tokens + 1)) / static_cast<double>(num_pages);
  return std::min(slots, pages);
}

std::optional<size_t> PlaceRequest(std::span<const PodRoom> pods, uint32_t tokens, uint64_t turn) {
  std::optional<size_t> best;
  double best_share = 0;
  for (size_t i = 0; i < pods.size(); ++i) {
    const size_t pod = (turn + i) % pods.size();
    if (!pods[pod].Fits(tokens)) continue;
    const double share = pods[pod].ShareLeft(tokens);
    if (best.has_value() && share <= best_share) continue;
    best = pod;
    best_share = share;
  }
  return best;
}

}  // namespace tandem
