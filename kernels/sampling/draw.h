// Draws of one token from one row of log-probabilities.
#ifndef TANDEM_KERNELS_SAMPLING_DRAW_H_
#define TANDEM_KERNELS_SAMPLING_DRAW_H_

#include <cstdint>
#include <span>

#include "kernels/sampling/philox.h"
#include "kernels/sampling/sampling_params.h"
#include "kernels/sampling/token_counts.h"

namespace tandem {

// Inverse CDF in token order, sums in double. Never a token of log-probability -infinity. u in [0,
// 1).
int32_t DrawFromLogProbs(std::span<const float> log_probs, double u);

// argmax_x(log p(x) + G(seed, position, x)), as argmin_x(E(x) / p(x)) with E exponential, 53-bit
// uniforms: the same noise for the drafter's row and the target's (Daliri, Musco, Suresh 2024).
// Ties go to the lowest id.
int32_t DrawCoupled(std::span<const float> log_probs, const DrawKey& key);

// One draft token, from the drafter's raw logits, as the request samples: greedy, coupled or by
// inverse CDF.
struct DraftDraw {
  bool finite = true;  // false: NaN or infinity among the logits, token_id means nothing
  int32_t token_id = -1;
};
//   logits     [V]  f32, the drafter's, raw
//   log_probs  [V]  f32 out: what the token was drawn from (q), after all transforms. Empty: not
//   wanted (greedy, coupled). scratch    [V]  f32, must not overlap the others
DraftDraw DrawDraftToken(std::span<const float> logits, const SamplingParams& params,
                         const TokenCounts& counts, int32_t num_output_tokens, const DrawKey& key,
                         std::span<float> log_probs, std::span<float> scratch);

}  // namespace tandem

#endif  // TANDEM_KERNELS_SAMPLING_DRAW_H_
