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

bool Suits(const PodView& pod, const Sequence& sequence, uint64_t largest_capacity) {
  if (!pod.open || !KeepsNumerics(pod, sequence)) return false;
  const uint64_t most =
      uint64_t{sequence.prompt_len()} + static_cast<uint64_t>(sequence.request.max_tokens);
  const uint64_t capacity = pod.room.capacity();
  return capacity == 0 || std::min(most, largest_capacity) <= capacity;
}

bool MayRun(const PodView& pod, const Sequence& sequence, uint64_t largest_capacity) {
  return Suits(pod, sequence, largest_capacity) || (pod.serves && sequence.pod == pod.id);
}

bool WasHeardSince(const PodView& pod, const Sequence& sequence) {
  return sequence.faults.verifiers_lost() == 0 || pod.heard_at > sequence.faults.suspected_at();
}

std::optional<size_t> PlaceRequest(std::span<const PodView> pods, std::span<const size_t> choices,
                                   uint32_t tokens, uint64_t turn) {
  if (choices.empty()) return std::nullopt;
  const auto begin = static_cast<size_t>(
      std::lower_bound(choices.begin(), choices.end(), turn % pods.size()) - choices.begin());
  std::optional<size_t> best;
  double best_share = 0;
  for (size_t i = 0; i < choices.size(); ++i) {
    const size_t pod = choices[(begin + i) % choices.size()];
    if (!pods[pod].room.Fits(tokens)) continue;
    const double share = pods[pod].room.ShareLeft(tokens);
    if (best.has_value() && share <= best_share) continue;
    best = pod;
    best_share = share;
  }
  return best;
}

}  // namespace tandem
