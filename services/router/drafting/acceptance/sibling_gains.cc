#include "services/router/drafting/acceptance/sibling_gains.h"

#include <algorithm>

#include "common/rpc/protocol.h"

namespace tandem {

std::vector<SiblingGain> RankSiblings(const AcceptanceEstimate& acceptance,
                                      std::span<const double> gains, size_t most,
                                      double least_gain) {
  std::vector<SiblingGain> siblings;
  for (uint32_t position = 0; position < gains.size(); ++position) {
    const double reached = position == 0 ? 1 : gains[position - 1];
    double gain = gains[position];
    for (uint32_t rank = 1; rank <= kMaxSiblings; ++rank) {
      gain = std::min(gain, reached * acceptance.OfSibling(rank));
      if (gain < least_gain) break;
      siblings.push_back({position, gain});
    }
  }
  std::stable_sort(siblings.begin(), siblings.end(),
                   [](const SiblingGain& a, const SiblingGain& b) { return a.gain > b.gain; });
  siblings.resize(std::min(siblings.size(), most));
  return siblings;
}

std::vector<uint32_t> SiblingsByPosition(std::span<const SiblingGain> siblings, uint32_t length,
                                         uint32_t count) {
  std::vector<uint32_t> by_position;
  for (const SiblingGain& sibling : siblings) {
    if (count == 0) break;
    if (sibling.position >= length) continue;
    if (by_position.size() <= sibling.position) by_position.resize(sibling.position + 1);
    ++by_position[sibling.position];
    --count;
  }
  return by_position;
}

}  // namespace tandem
