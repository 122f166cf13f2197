// Matrix product with a weight matrix: out = x · Wᵀ, the shape of every linear layer of a decoder.
#ifndef TANDEM_KERNELS_MATMUL_H_
#define TANDEM_KERNELS_MATMUL_H_

#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "kernels/device/bf16_rows.h"
#include "kernels/device/stream.h"
#include "kernels/dtype.h"
#include "kernels/thread_pool.h"

namespace tandem {

// One product. Row-major; nothing needs to be aligned.
//   x     [rows, in_features]           f32, rows x_stride floats apart
//   w     [out_features, in_features]   dtype, contiguous (read in place in a safetensors file)
//   bias  [out_features]                f32, or null
//   out   [rows, out_features]          f32, rows out_stride floats apart; must not overlap x
// With add_to_out: out += x · Wᵀ + bias (a residual). Without: out = x · Wᵀ + bias.
// PRECOND: rows >= 0, in_features >= 1, out_features >= 0.
struct MatMulArgs {
  const float* x = nullptr;
  size_t x_stride = 0;
  size_t rows = 0;
  const void* w = nullptr;
  DType dtype = DType::kBF16;
  size_t out_features = 0;
  size_t in_features = 0;
  const float* bias = nullptr;
  float* out = nullptr;
  size_t out_stride = 0;
  bool add_to_out = false;
  // On a GPU alone, with BF16 weights: x in BF16 parts. `x` is then not read.
  Bf16Rows x_bf16 = {};
};

// Runs independent products (Q, K and V of a layer; gate and up) in one parallel region.
//
// The result is batch-invariant: out[m, n] has the same bits for any `rows`, any other rows and any
// number of threads. Each element is one chain of fused multiply-adds per vector lane, with k
// ascending, then a fixed tree over the lanes. The path for few rows (decode, verify) and the
// blocked path (prefill) use the same order. Sums are F32. The bits depend on the instruction set
// that was chosen at start (see NumericsId in kernels/cpu.h). With UsesMatrixUnits(), BF16 weights
// have the order of sums of kernels/amx/matmul_amx.h. With RoundsActivations(), x is rounded to
// BF16 where the weights are BF16 (kernels/support/activation_precision.h).
void MatMul(std::span<const MatMulArgs> products, ThreadPool& pool);

// One product on a GPU. Pointers are device pointers. The work is enqueued on `stream`; the call
// does not wait. The result is batch-invariant too, with an order of sums of its own. BF16 weights
// are multiplied with x_bf16 on matrix units, for few rows and for many (matmul_bf16/). F16
// and F32 weights are multiplied with x without matrix units, and are read once for eight rows
// (matmul_cuda.cu). INVALID_ARGUMENT: x or w does not begin at a multiple of 16 bytes, x_stride is
// no multiple of 4, in_features is no multiple of 8, or x_bf16 is missing or misaligned. INTERNAL:
// the launch was refused.
absl::Status MatMul(const MatMulArgs& args, CudaStream stream);

// The same product in plain loops over doubles. Tests compare with it.
void MatMulReference(const MatMulArgs& args);

}  // namespace tandem

#endif  // TANDEM_KERNELS_MATMUL_H_
