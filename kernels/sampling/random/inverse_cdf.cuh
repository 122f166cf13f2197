// Inverse-CDF draws on a device, computed by a whole thread block (inverse_cdf.h on the CPU).
#ifndef TANDEM_KERNELS_SAMPLING_RANDOM_INVERSE_CDF_CUH_
#define TANDEM_KERNELS_SAMPLING_RANDOM_INVERSE_CDF_CUH_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/device/device_code.cuh"

namespace tandem {

// Draws index x with probability weight(x) / total, in index order. Never returns an index of
// weight 0, and returns -1 if all weights are 0. `weight(i)` is a double >= 0 and the same for all
// threads. u is in [0, 1). All threads get the result.
//
// The row is cut into one part for each warp, and the warps sum the parts. The part that holds the
// draw is cut again, until parts are single entries. 128,256 entries take 5 steps of 16 warps.
//   scratch  [32]  shared memory that may be used again at once
template <typename WeightOf>
__device__ int32_t DrawByInverseCdf(size_t size, double u, double* scratch, WeightOf weight) {
  const size_t num_warps = blockDim.x / kWarpSize;
  const auto warp = static_cast<size_t>(Warp());
  size_t begin = 0;
  size_t end = size;
  double below = 0;    // sum of all entries before `begin`
  double wanted = -1;  // not known before the first step
  while (true) {
    const size_t part = (end - begin + num_warps - 1) / num_warps;
    const size_t part_begin = begin + warp * part;
    const size_t part_end = part_begin + part < end ? part_begin + part : end;
    double sum = 0;
    for (size_t i = part_begin + static_cast<size_t>(Lane()); i < part_end; i += kWarpSize) {
      sum = __dadd_rn(sum, weight(i));
    }
    sum = WarpSum(sum);
    if (Lane() == 0) scratch[warp] = sum;
    __syncthreads();
    if (wanted < 0) {
      double total = 0;
      for (size_t w = 0; w < num_warps; ++w) total = __dadd_rn(total, scratch[w]);
      wanted = __dmul_rn(u, total);
      if (!(total > 0)) begin = end;
    }
    // Rounding may leave the sum at the last part below `wanted`. The last part with a weight is
    // taken then.
    size_t chosen = 0;
    double below_chosen = below;
    double reached = below;
    for (size_t w = 0; w < num_warps && reached <= wanted; ++w) {
      if (scratch[w] == 0) continue;
      chosen = w;
      below_chosen = reached;
      reached = __dadd_rn(reached, scratch[w]);
    }
    __syncthreads();
    if (begin == end) return -1;
    begin += chosen * part;
    if (part == 1) return static_cast<int32_t>(begin);
    end = begin + part < end ? begin + part : end;
    below = below_chosen;
  }
}

}  // namespace tandem

#endif  // TANDEM_KERNELS_SAMPLING_RANDOM_INVERSE_CDF_CUH_
