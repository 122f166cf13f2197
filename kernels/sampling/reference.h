// The sampling contracts in plain loops over doubles: what tests compare the vectorised code with,
// and what the exact distributions of the statistical tests are enumerated from.
#ifndef TANDEM_KERNELS_SAMPLING_REFERENCE_H_
#define TANDEM_KERNELS_SAMPLING_REFERENCE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/sampling/audit_sample.h"
#include "kernels/sampling/philox.h"
#include "kernels/sampling/sampling_params.h"
#include "kernels/sampling/token_counts.h"
#include "kernels/sampling/verify_block.h"

namespace tandem {

// AdjustLogits (transform.h). Rounded to f32 like there, so that ties are the same.
std::vector<double> AdjustLogitsReference(std::span<const float> logits,
                                          const SamplingParams& params, const TokenCounts& counts,
                                          int32_t num_output_tokens);

// exp of LogProbs (transform.h): probabilities, 0 where cut. PRECOND: !params.greedy().
std::vector<double> ProbsReference(std::span<const double> adjusted, const SamplingParams& params);

// Both: the distribution that a token is drawn from. Greedy gives the one-hot row of the argmax.
std::vector<double> SamplingProbsReference(std::span<const float> logits,
                                           const SamplingParams& params, const TokenCounts& counts,
                                           int32_t num_output_tokens);

// Inverse CDF in index order over weights >= 0 of any sum; never one of weight 0. u in [0, 1).
int32_t DrawReference(std::span<const double> weights, double u);

// DrawCoupled (draw.h).
int32_t DrawCoupledReference(std::span<const double> probs, const DrawKey& key);

// norm(max(0, p - q)) without the norm; p where that is all zero.
std::vector<double> ResidualReference(std::span<const double> p, std::span<const double> q);

// SampleForAudit (audit_sample.h). `q` is the one-hot row where the drafter gave none.
AuditSample SampleForAuditReference(std::span<const double> p, std::span<const double> q,
                                    int32_t drafted, int32_t token_id, const DrawKey& key);

// VerifyBlock (verify_block.h).
BlockVerdict VerifyBlockReference(const VerifyBlockArgs& args);

}  // namespace tandem

#endif  // TANDEM_KERNELS_SAMPLING_REFERENCE_H_
