// Root-mean-square normalization (Zhang and Sennrich 2019), as Llama uses it for rows and Qwen3 for
// heads too.
#ifndef TANDEM_KERNELS_RMS_NORM_H_
#define TANDEM_KERNELS_RMS_NORM_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/device/bf16_rows.h"
#include "kernels/device/stream.h"

namespace tandem {

// out[r, h, i] = x[r, h, i] / sqrt(mean_i(x[r, h, i]^2) + eps) * weight[i]
//   x       [rows, num_heads, size]  f32, rows x_stride floats apart, heads contiguous
//   weight  [size]                   f32
//   out     [rows, num_heads, size]  f32, rows out_stride floats apart; may be x itself
// Nothing needs to be aligned. Runs in the caller; a head's bits depend on that head alone.
// PRECOND: size >= 1.
struct RmsNormArgs {
  const float* x = nullptr;
  size_t x_stride = 0;
  size_t rows = 0;
  size_t num_heads = 1;  // each is normalized by itself
  size_t size = 0;
  const float* weight = nullptr;
  float eps = 0;
  float* out = nullptr;
  size_t out_stride = 0;
  // On a GPU alone: the output in BF16 parts instead. `out` is then not written. num_heads is 1.
  Bf16Rows out_bf16 = {};
  // On a GPU alone: [rows] i32. If it is given, row r of the output goes to row out_rows[r] of
  // `out`. PRECOND: all of them differ, `out` is not x, and out_bf16 is not given.
  const int32_t* out_rows = nullptr;
};

void RmsNorm(const RmsNormArgs& args);

// The same on a GPU (rms_norm_cuda.cu). Pointers are device pointers. The work is enqueued on
// `stream`; the call does not wait. INTERNAL: the launch was refused.
absl::Status RmsNorm(const RmsNormArgs& args, CudaStream stream);

// The same in plain loops over doubles. Tests compare with it.
void RmsNormReference(const RmsNormArgs& args);

}  // namespace tandem

#endif  // TANDEM_KERNELS_RMS_NORM_H_
