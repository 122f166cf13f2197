// Matrix product with BF16 weights on a GPU's matrix units. MatMul (kernels/matmul.h) calls it.
#ifndef TANDEM_KERNELS_MATMUL_BF16_MATMUL_BF16_CUDA_H_
#define TANDEM_KERNELS_MATMUL_BF16_MATMUL_BF16_CUDA_H_

#include "absl/status/status.h"
#include "kernels/device/stream.h"
#include "kernels/matmul.h"

namespace tandem {

// Computes what MatMul on a GPU computes. PRECOND: `args` have the alignment that MatMul asks for,
// the dtype is BF16, x_bf16 is given, rows >= 1, out_features >= 1.
absl::Status MatMulBf16(const MatMulArgs& args, CudaStream stream);

}  // namespace tandem

#endif  // TANDEM_KERNELS_MATMUL_BF16_MATMUL_BF16_CUDA_H_
