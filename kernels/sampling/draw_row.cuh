// DrawFromLogProbs (draw.h) on a device, computed by a whole thread block.
#ifndef TANDEM_KERNELS_SAMPLING_DRAW_ROW_CUH_
#define TANDEM_KERNELS_SAMPLING_DRAW_ROW_CUH_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/sampling/random/inverse_cdf.cuh"
#include "kernels/sampling/transform/sort_key.cuh"

namespace tandem {

// Threads of a block that draws. The sums of a draw depend on their number, and every kernel that
// draws a target's token must draw the same one.
inline constexpr int kDrawThreads = 1024;

// Never returns a token of log-probability -infinity. Returns the most likely token if every
// probability is 0 as a float. All threads get the result.
//   sums, keys  [32]  shared memory that may be used again at once
__device__ inline int32_t DrawRow(const float* log_probs, size_t size, double u, double* sums,
                                  uint64_t* keys) {
  const int32_t token_id = DrawByInverseCdf<8>(
      size, u, sums, [&](unsigned i) { return log_probs[i]; },
      [](unsigned, float log_prob) { return static_cast<double>(expf(log_prob)); });
  return token_id >= 0 ? token_id : IdOfKey(SmallestKey(log_probs, size, 0, keys));
}

}  // namespace tandem

#endif  // TANDEM_KERNELS_SAMPLING_DRAW_ROW_CUH_
