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

}  // namespace tandem
