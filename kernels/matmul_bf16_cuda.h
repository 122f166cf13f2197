// Matrix product with BF16 weights on a GPU's matrix units. MatMul (kernels/matmul.h) calls it.
#ifndef TANDEM_KERNELS_MATMUL_BF16_CUDA_H_
#define TANDEM_KERNELS_MATMUL_BF16_CUDA_H_

#include <cstddef>

#include "absl/status/status.h"
#include "kernels/device/stream.h"
#include "kernels/matmul.h"

namespace tandem {

// Computes what MatMul on a GPU computes. PRECOND: `args` have the alignment that MatMul asks for,
// the dtype is BF16, rows >= 1, out_features >= 1.
absl::Status MatMulBf16(const MatMulArgs& args, CudaStream stream);

// Number of parts that in_features is cut into. The sums of the parts are added at the end. Few
// output features have many parts, so that each multiprocessor of a large GPU has enough loads in
// flight.
inline int NumSlices(size_t out_features) {
  if (out_features <= 4096) return 8;
  return out_features <= 16384 ? 4 : 1;
}

}  // namespace tandem

#endif  // TANDEM_KERNELS_MATMUL_BF16_CUDA_H_
