#include "services/router/admission/placement.h"

#include <algorithm>

namespace tandem {

uint64_t PodsView::LargestCapacity() const {
  uint64_t largest = 0;
  for (const PodView& pod : pods) largest = std::max(largest, pod.room.capacity());
  return largest;
}

bool KeepsNumerics(const PodView& pod, const Sequence& sequence) {
  return !sequence.has_output() || pod.numerics_id == sequence.numerics_id;
}

bool MayRun(const PodView& pod, const Sequence& sequence, uint64_t largest_capacity) {
  if (!pod.open) return false;
  const uint64_t most =
      uint64_t{sequence.prompt_len()} + static_cast<uint64_t>(sequence.request.max_tokens);
  const uint64_t capacity = pod.room.capacity();
  if (capacity > 0 && std::min(most, largest_capacity) > capacity) return false;
  return KeepsNumerics(pod, sequence) || sequence.pod == pod.id;
}

bool WasHeardSince(const PodView& pod, const Sequence& sequence) {
  return sequence.faults.verifiers_lost() == 0 || pod.heard_at > sequence.faults.suspected_at();
}

std::optional<size_t> PlaceRequest(std::span<const PodView> pods, const std::vector<bool>& may_take,
                                   uint32_t tokens, uint64_t turn) {
  std::optional<size_t> best;
  double best_share = 0;
  for (size_t i = 0; i < pods.size(); ++i) {
    const size_t pod = (turn + i) % pods.size();
    if (!may_take[pod] || !pods[pod].room.Fits(tokens)) continue;
    const double share = pods[pod].room.ShareLeft(tokens);
    if (best.has_value() && share <= best_share) continue;
    best = pod;
    best_share = share;
  }
  return best;
}

}  // namespace tandem
