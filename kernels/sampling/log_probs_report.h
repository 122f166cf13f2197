// The log-probabilities that a client asks for with each token.
#ifndef TANDEM_KERNELS_SAMPLING_LOG_PROBS_REPORT_H_
#define TANDEM_KERNELS_SAMPLING_LOG_PROBS_REPORT_H_

#include <cstdint>
#include <span>

#include "kernels/sampling/accept_reject.h"

namespace tandem {

// Returns the log-softmax of raw logits (temperature 1, no transform) at token_id, and its num_top
// largest entries.
//   logits    [V]  f32, finite
//   token_id  in [0, V)
//   num_top   >= 0; at most V entries are returned
TokenLogProbs ReportLogProbs(std::span<const float> logits, int32_t token_id, int32_t num_top);

}  // namespace tandem

#endif  // TANDEM_KERNELS_SAMPLING_LOG_PROBS_REPORT_H_
