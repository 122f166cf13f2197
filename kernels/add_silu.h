// The step of a residual layer with the activation SiLU, as Medusa's heads have it (Cai et al.
// 2024, "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads", arXiv
// 2401.10774, section 2.1.1).
#ifndef TANDEM_KERNELS_ADD_SILU_H_
#define TANDEM_KERNELS_ADD_SILU_H_

#include <cstddef>

#include "absl/status/status.h"
#include "kernels/device/bf16_rows.h"
#include "kernels/device/stream.h"

namespace tandem {

// y[r, i] = x[r, i] + silu(y[r, i]), silu(z) = z / (1 + exp(-z))
//   x  [rows, size]  f32, rows x_stride floats apart
//   y  [rows, size]  f32, rows y_stride floats apart; in and out; must not overlap x
// Nothing needs to be aligned. Runs in the caller. An element's bits depend on its own inputs and
// on its place in the row.
struct AddSiluArgs {
  const float* x = nullptr;
  size_t x_stride = 0;
  float* y = nullptr;
  size_t y_stride = 0;
  size_t rows = 0;
  size_t size = 0;
  // On a GPU alone: the result in BF16 parts too, for the next product.
  Bf16Rows out_bf16 = {};
};

void AddSilu(const AddSiluArgs& args);

// The same on a GPU (add_silu_cuda.cu). Pointers are device pointers. The work is enqueued on
// `stream`; the call does not wait. INTERNAL: the launch was refused.
absl::Status AddSilu(const AddSiluArgs& args, CudaStream stream);

// The same in plain loops over doubles. Tests compare with it.
void AddSiluReference(const AddSiluArgs& args);

}  // namespace tandem

#endif  // TANDEM_KERNELS_ADD_SILU_H_
