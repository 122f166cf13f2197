// The sampling contracts in plain loops over doubles. Tests compare the vectorized code with them,
// and the statistical tests enumerate their exact distributions from them.
#ifndef TANDEM_KERNELS_SAMPLING_REFERENCE_H_
#define TANDEM_KERNELS_SAMPLING_REFERENCE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/sampling/accept_reject.h"
#include "kernels/sampling/audit_sample.h"
#include "kernels/sampling/random/philox.h"
#include "kernels/sampling/transform/sampling_params.h"
#include "kernels/sampling/transform/token_counts.h"

namespace tandem {

// AdjustLogits (transform.h). Results are rounded to f32 in the same way, so that ties are the
// same.
std::vector<double> AdjustLogitsReference(std::span<const float> logits,
                                          const SamplingParams& params, const TokenCounts& counts,
                                          int32_t num_output_tokens);

// The exponentials of LogProbs (transform.h): probabilities, which are 0 for tokens that were cut.
// PRECOND: !params.greedy().
std::vector<double> ProbsReference(std::span<const double> adjusted, const SamplingParams& params);

// The distribution that a token is drawn from: both functions above. Greedy sampling gives the
// one-hot row of the argmax.
std::vector<double> SamplingProbsReference(std::span<const float> logits,
                                           const SamplingParams& params, const TokenCounts& counts,
                                           int32_t num_output_tokens);

// Draws by inverse CDF in index order over weights >= 0 of any sum. Never returns an index of
// weight
// 0. PRECOND: u is in [0, 1).
int32_t DrawReference(std::span<const double> weights, double u);

// DrawCoupled (draw.h).
int32_t DrawCoupledReference(std::span<const double> probs, const DrawKey& key);

// max(0, p - q), not normalized; p if that is zero everywhere.
std::vector<double> ResidualReference(std::span<const double> p, std::span<const double> q);

// SampleForAudit (audit_sample.h). `q` is empty if the draft tokens were found.
AuditSample SampleForAuditReference(std::span<const double> p, std::span<const double> q,
                                    std::span<const int32_t> drafted, int32_t token_id,
                                    const DrawKey& key);

// AcceptReject (accept_reject.h).
BlockVerdict AcceptRejectReference(const AcceptRejectArgs& args);

}  // namespace tandem

#endif  // TANDEM_KERNELS_SAMPLING_REFERENCE_H_
