// DrawFromLogProbs (draw.h) on a device, computed by a whole thread block.
#ifndef TANDEM_KERNELS_SAMPLING_DRAW_ROW_CUH_
#define TANDEM_KERNELS_SAMPLING_DRAW_ROW_CUH_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/sampling/random/inverse_cdf.cuh"
#include "kernels/sampling/transform/sort_key.cuh"

namespace tandem {

// Never returns a token of log-probability -infinity. Returns the most likely token if every
// probability is 0 as a float. All threads get the result.
//   sums, keys  [32]  shared memory that may be used again at once
__device__ inline int32_t DrawRow(const float* log_probs, size_t size, double u, double* sums,
                                  uint64_t* keys) {
  const int32_t token_id = DrawByInverseCdf(
      size, u, sums, [&](size_t i) { return static_cast<double>(expf(log_probs[i])); });
  return token_id >= 0 ? token_id : IdOfKey(SmallestKey(log_probs, size, 0, keys));
}

}  // namespace tandem

#endif  // TANDEM_KERNELS_SAMPLING_DRAW_ROW_CUH_
