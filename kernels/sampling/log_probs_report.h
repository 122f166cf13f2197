// The log-probabilities that a client asks for with each token.
#ifndef TANDEM_KERNELS_SAMPLING_LOG_PROBS_REPORT_H_
#define TANDEM_KERNELS_SAMPLING_LOG_PROBS_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/device/stream.h"
#include "kernels/sampling/accept_reject.h"

namespace tandem {

// Returns the log-softmax of raw logits (temperature 1, no transform) at token_id, and its num_top
// largest entries.
//   logits    [V]  f32, finite
//   token_id  in [0, V)
//   num_top   >= 0; at most V entries are returned
TokenLogProbs ReportLogProbs(std::span<const float> logits, int32_t token_id, int32_t num_top);

// ---------------------------------------------------------------- on a GPU

// Reports the largest entries of many rows (reports_cuda.cu). All arrays are in device memory.
//   logits   [rows, V]  f32, rows `stride` floats apart
//   num_top  from 1 to kMaxTopLogProbs; at most V entries are reported
//   reports  [rows]     out: num_top, so many entries of `top`, and in `log_prob` that of a logit
//                       of 0. The rest of a report means nothing. num_top 0: a logit of the row is
//                       not finite
struct DeviceRowReportArgs {
  size_t rows = 0;
  size_t vocabulary_size = 0;
  size_t stride = 0;
  const float* logits = nullptr;
  int32_t num_top = 0;
  DeviceReport* reports = nullptr;
};

// The work is enqueued on `stream`; the call does not wait. INTERNAL: the launch was refused.
absl::Status ReportRows(const DeviceRowReportArgs& args, CudaStream stream);

}  // namespace tandem

#endif  // TANDEM_KERNELS_SAMPLING_LOG_PROBS_REPORT_H_
