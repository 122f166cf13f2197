// Root-mean-square normalisation (Zhang and Sennrich 2019), as Llama uses it.
#ifndef TANDEM_KERNELS_RMS_NORM_H_
#define TANDEM_KERNELS_RMS_NORM_H_

#include <cstddef>

#include "absl/status/status.h"
#include "kernels/cuda/stream.h"

namespace tandem {

// out[r, i] = x[r, i] / sqrt(mean_i(x[r, i]^2) + eps) * weight[i]
//   x       [rows, size]  f32, rows x_stride floats apart
//   weight  [size]        f32
//   out     [rows, size]  f32, rows out_stride floats apart; may be x itself
// Nothing needs to be aligned. Runs in the caller; a row's bits do not depend on the other rows.
// PRECOND: size >= 1.
struct RmsNormArgs {
  const float* x = nullptr;
  size_t x_stride = 0;
  size_t rows = 0;
  size_t size = 0;
  const float* weight = nullptr;
  float eps = 0;
  float* out = nullptr;
  size_t out_stride = 0;
};

void RmsNorm(const RmsNormArgs& args);

// The same on a GPU (rms_norm_cuda.cu): pointers are of device memory; enqueued on `stream`,
// nothing waits. INTERNAL: the launch was refused.
absl::Status RmsNorm(const RmsNormArgs& args, CudaStream stream);

// The same in plain loops over doubles: what tests compare with.
void RmsNormReference(const RmsNormArgs& args);

}  // namespace tandem

#endif  // TANDEM_KERNELS_RMS_NORM_H_
