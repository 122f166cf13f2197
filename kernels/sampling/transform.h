// From raw logits to the distribution that a token is drawn from. One order, in draft and target
// alike:
//   repetition, presence, frequency penalty; logit bias; min_tokens mask; temperature; top-k;
//   top-p; min-p.
// Greedy decoding takes the argmax after the first four.
#ifndef TANDEM_KERNELS_SAMPLING_TRANSFORM_H_
#define TANDEM_KERNELS_SAMPLING_TRANSFORM_H_

#include <cstdint>
#include <span>

#include "kernels/sampling/sampling_params.h"
#include "kernels/sampling/token_counts.h"

namespace tandem {

// False when a raw logit is NaN or infinite.
bool AllFinite(std::span<const float> logits);

// The transforms that depend on the context. `counts` holds every token before the one to be drawn,
// the block's earlier draft tokens included; num_output_tokens is how many of them are output.
//   logits, adjusted  [V]  f32; may be the same memory. Masked entries become -infinity.
// A min_tokens mask that would leave no token at all is not applied.
// Repetition penalty as in Keskar et al. 2019 (CTRL): divide a positive logit by it, multiply a
// negative one.
void AdjustLogits(std::span<const float> logits, const SamplingParams& params,
                  const TokenCounts& counts, int32_t num_output_tokens, std::span<float> adjusted);

// False when AdjustLogits would only copy.
bool AdjustsLogits(const SamplingParams& params, int32_t num_output_tokens);
// True when it looks at `counts`.
bool HasPenalties(const SamplingParams& params);

// Temperature, top-k, top-p, min-p, then normalises. PRECOND: !params.greedy().
//   adjusted, log_probs  [V]  f32; may be the same memory. Entries that were cut are -infinity.
// Ties at the cut of top-k (equal adjusted logits) and top-p (equal after temperature, in f32):
// lower token ids stay. Sums in double.
void LogProbs(std::span<const float> adjusted, const SamplingParams& params,
              std::span<float> log_probs);

// Index of the largest entry; the lowest id among equals. PRECOND: not empty, no NaN.
int32_t Argmax(std::span<const float> values);

}  // namespace tandem

#endif  // TANDEM_KERNELS_SAMPLING_TRANSFORM_H_
