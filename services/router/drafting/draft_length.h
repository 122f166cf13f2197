// Limits the number of tokens that the drafter is asked for.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_DRAFT_LENGTH_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_DRAFT_LENGTH_H_

#include <algorithm>
#include <cstdint>

namespace tandem {

struct DraftLengthLimits {
  uint32_t wanted = 0;  // from the request or from the server's flag
  uint32_t committed_len = 0;
  uint32_t remaining_tokens = 0;  // tokens that may still be emitted, >= 1
  uint32_t target_context = 0;    // tokens that a sequence may have in the target
  uint32_t draft_context = 0;
};

// Returns the largest allowed draft length K; 0 means plain decoding. A round commits up to K + 1
// tokens, so K = remaining - 1 is the largest useful length. The target must have room for
// committed_len + K + 1 tokens. The drafter must have room for all its own tokens except the last
// one. Only facts that are known before the draw may decide the length, because a length that
// depends on the draw would bias the output.
inline uint32_t LimitDraftLength(const DraftLengthLimits& limits) {
  const auto room = [](uint32_t limit, uint32_t used) { return limit > used ? limit - used : 0; };
  return std::min({limits.wanted, room(limits.remaining_tokens, 1),
                   room(limits.target_context, limits.committed_len + 1),
                   room(limits.draft_context, limits.committed_len)});
}

// Returns the number of rounds over which the cost of a catch-up is spread, which is an investment.
// There is one such round for each group of four tokens that the request may still emit: probably
// half of these tokens will come, at two tokens per round.
inline double CatchUpRounds(uint32_t remaining_tokens) {
  constexpr double kTokensPerCatchUpRound = 4;
  constexpr double kMostCatchUpRounds = 128;
  return std::clamp(remaining_tokens / kTokensPerCatchUpRound, 1.0, kMostCatchUpRounds);
}

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_DRAFT_LENGTH_H_
