// The gate of Llama's MLP (Shazeer 2020, "GLU Variants Improve Transformer").
#ifndef TANDEM_KERNELS_SWIGLU_H_
#define TANDEM_KERNELS_SWIGLU_H_

#include <cstddef>

#include "absl/status/status.h"
#include "kernels/device/bf16_rows.h"
#include "kernels/device/stream.h"

namespace tandem {

// gate[r, i] = silu(gate[r, i]) * up[r, i], silu(x) = x / (1 + exp(-x))
//   gate  [rows, size]  f32, rows gate_stride floats apart; in and out
//   up    [rows, size]  f32, rows up_stride floats apart; must not overlap gate's elements
// Nothing needs to be aligned. Runs in the caller. An element's bits depend on its own inputs and
// on its place in the row.
struct SwiGluArgs {
  float* gate = nullptr;
  size_t gate_stride = 0;
  const float* up = nullptr;
  size_t up_stride = 0;
  size_t rows = 0;
  size_t size = 0;
  // On a GPU alone: the result in BF16 parts. If it is given, `gate` is not written.
  Bf16Rows out_bf16 = {};
};

void SwiGlu(const SwiGluArgs& args);

// The same on a GPU (swiglu_cuda.cu). Pointers are device pointers. The work is enqueued on
// `stream`; the call does not wait. INTERNAL: the launch was refused.
absl::Status SwiGlu(const SwiGluArgs& args, CudaStream stream);

// The same in plain loops over doubles. Tests compare with it.
void SwiGluReference(const SwiGluArgs& args);

}  // namespace tandem

#endif  // TANDEM_KERNELS_SWIGLU_H_
