// Inverse-CDF draws on a device, computed by a whole thread block (inverse_cdf.h on the CPU).
#ifndef TANDEM_KERNELS_SAMPLING_RANDOM_INVERSE_CDF_CUH_
#define TANDEM_KERNELS_SAMPLING_RANDOM_INVERSE_CDF_CUH_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/device/device_code.cuh"

namespace tandem {

// Chooses the part of a row that holds a draw, and again the part of this part. Computed by a warp
// with a part for each lane.
struct PartsOfRow {
  double below = 0;    // sum of all entries before the chosen part
  double wanted = -1;  // not known before the first choice

  // Returns the chosen part, or -1 if there is no weight. All lanes get it.
  //   sum  of the lane's part
  __device__ int Choose(double sum, double u) {
    double reached = sum;
    for (unsigned lanes = 1; lanes < kWarpSize; lanes *= 2) {
      const double before = __shfl_up_sync(kAllLanes, reached, lanes);
      if (Lane() >= static_cast<int>(lanes)) reached = __dadd_rn(before, reached);
    }
    if (wanted < 0) {
      const double total = __shfl_sync(kAllLanes, reached, kWarpSize - 1);
      if (!(total > 0)) return -1;
      wanted = __dmul_rn(u, total);
    }
    const unsigned with_weight = __ballot_sync(kAllLanes, sum > 0 ? 1 : 0);
    const unsigned reaching =
        __ballot_sync(kAllLanes, sum > 0 && __dadd_rn(below, reached) > wanted ? 1 : 0);
    // Rounding may leave the sum at the last part at or below `wanted`. The last part with a weight
    // is taken then.
    const int chosen = reaching != 0      ? __ffs(static_cast<int>(reaching)) - 1
                       : with_weight != 0 ? kWarpSize - 1 - __clz(static_cast<int>(with_weight))
                                          : -1;
    if (chosen > 0) below = __dadd_rn(below, __shfl_sync(kAllLanes, reached, chosen - 1));
    return chosen;
  }
};

// Draws index x with probability weight(x, load(x)) / total, in index order. Never returns an index
// of weight 0, and returns -1 if all weights are 0. `load(i)` reads what the weight depends on, and
// a thread has kInFlight of these reads in flight. `weight(i, loaded)` is a double >= 0 and the
// same for all threads. u is in [0, 1). All threads get the result.
//
// The row is cut into one part for each warp, and the warps sum the parts. The part that holds the
// draw is cut again, until parts are single entries. 128,256 entries take 4 steps of 32 warps.
//   scratch  [32]  shared memory that may be used again at once
template <unsigned kInFlight, typename Load, typename WeightOf>
__device__ int32_t DrawByInverseCdf(size_t size, double u, double* scratch, Load load,
                                    WeightOf weight) {
  const unsigned num_warps = blockDim.x / kWarpSize;
  const auto lane = static_cast<unsigned>(Lane());
  unsigned begin = 0;
  auto end = static_cast<unsigned>(size);
  PartsOfRow parts;
  while (true) {
    const unsigned part = (end - begin + num_warps - 1) / num_warps;
    const unsigned part_begin = begin + static_cast<unsigned>(Warp()) * part;
    const unsigned part_end = part_begin + part < end ? part_begin + part : end;
    double sum = 0;
    for (unsigned i = part_begin + lane; i < part_end; i += kInFlight * kWarpSize) {
      decltype(load(i)) loaded[kInFlight];
      TANDEM_UNROLL
      for (unsigned j = 0; j < kInFlight; ++j) {
        loaded[j] = load(min(i + j * kWarpSize, part_end - 1));
      }
      TANDEM_UNROLL
      for (unsigned j = 0; j < kInFlight; ++j) {
        const unsigned of = i + j * kWarpSize;
        if (of < part_end) sum = __dadd_rn(sum, weight(of, loaded[j]));
      }
    }
    sum = WarpSum(sum);
    if (lane == 0) scratch[Warp()] = sum;
    __syncthreads();
    if (Warp() == 0) {
      const int chosen = parts.Choose(lane < num_warps ? scratch[lane] : 0.0, u);
      if (lane == 0) scratch[0] = chosen;
    }
    __syncthreads();
    const auto chosen = static_cast<int>(scratch[0]);
    __syncthreads();
    if (chosen < 0) return -1;
    begin += static_cast<unsigned>(chosen) * part;
    if (part == 1) return static_cast<int32_t>(begin);
    end = begin + part < end ? begin + part : end;
  }
}

}  // namespace tandem

#endif  // TANDEM_KERNELS_SAMPLING_RANDOM_INVERSE_CDF_CUH_
