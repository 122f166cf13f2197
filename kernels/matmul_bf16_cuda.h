// Matrix product with BF16 weights on a GPU's matrix units: what MatMul (kernels/matmul.h) does with
// them.
#ifndef TANDEM_KERNELS_MATMUL_BF16_CUDA_H_
#define TANDEM_KERNELS_MATMUL_BF16_CUDA_H_

#include <cstddef>

#include "absl/status/status.h"
#include "kernels/cuda/stream.h"
#include "kernels/matmul.h"

namespace tandem {

// As MatMul on a GPU, whose alignment `args` have. PRECOND: dtype is BF16, rows and out_features
// >= 1.
absl::Status MatMulBf16(const MatMulArgs& args, CudaStream stream);

// Parts that in_features is cut into, whose sums are added at the end: many where there are few
// features, so that each multiprocessor of a large GPU has enough loads under way.
inline int NumSlices(size_t out_features) {
  if (out_features <= 4096) return 8;
  return out_features <= 16384 ? 4 : 1;
}

}  // namespace tandem

#endif  // TANDEM_KERNELS_MATMUL_BF16_CUDA_H_
