// How many tokens the drafter is asked for.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_DRAFT_LENGTH_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_DRAFT_LENGTH_H_

#include <algorithm>
#include <cstdint>

namespace tandem {

struct DraftLengthLimits {
  uint32_t wanted = 0;  // the request's or the server's
  uint32_t committed_len = 0;
  uint32_t remaining_tokens = 0;  // that may still be emitted, >= 1
  uint32_t target_context = 0;    // tokens that a sequence may have
  uint32_t draft_context = 0;
};

// 0: decode plainly. A round commits up to K + 1 tokens, so K = remaining - 1 is the most that can
// be of use, and committed_len + K + 1 must fit the target. The drafter must hold all but the last
// of its own tokens. What is known before the draw decides, never the draw itself: that would bias
// the output.
inline uint32_t LimitDraftLength(const DraftLengthLimits& limits) {
  const auto room = [](uint32_t limit, uint32_t used) { return limit > used ? limit - used : 0; };
  return std::min({limits.wanted, room(limits.remaining_tokens, 1),
                   room(limits.target_context, limits.committed_len + 1),
                   room(limits.draft_context, limits.committed_len)});
}

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_DRAFT_LENGTH_H_
