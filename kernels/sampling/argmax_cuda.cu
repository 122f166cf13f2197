// The most likely token of each row on a GPU: a block a row.
#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/sampling/sort_key.cuh"
#include "kernels/sampling/transform.h"

namespace tandem {
namespace {

constexpr int kThreads = 512;

__device__ uint64_t Smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

__global__ void __launch_bounds__(kThreads) ArgmaxRow(DeviceArgmaxArgs args) {
  const float* const logits = args.logits + blockIdx.x * args.stride;
  uint64_t best = ~uint64_t{0};
  bool finite = true;
  for (size_t i = threadIdx.x; i < args.vocabulary_size; i += kThreads) {
    // Of NaN and infinities alone the exponent is all ones.
    finite = finite && (__float_as_uint(logits[i]) & 0x7F800000u) != 0x7F800000u;
    best = Smaller(best, DeviceSortKey(logits[i], static_cast<uint32_t>(i)));
  }
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) {
    best = Smaller(best, __shfl_xor_sync(kAllLanes, best, lanes));
  }
  uint64_t* const of_warps = SharedMemory<uint64_t>();  // [kThreads / kWarpSize]
  if (Lane() == 0) of_warps[Warp()] = best;
  const bool all_finite = __syncthreads_and(finite ? 1 : 0) != 0;
  if (threadIdx.x != 0) return;
  for (int warp = 1; warp < kThreads / kWarpSize; ++warp) best = Smaller(best, of_warps[warp]);
  args.token_ids[blockIdx.x] = all_finite ? static_cast<int32_t>(static_cast<uint32_t>(best)) : -1;
}

}  // namespace

absl::Status Argmax(const DeviceArgmaxArgs& args, CudaStream stream) {
  if (args.rows == 0) return absl::OkStatus();
  return Launch("Argmax", ArgmaxRow,
                {dim3(static_cast<unsigned>(args.rows)), dim3(kThreads),
                 kThreads / kWarpSize * sizeof(uint64_t)},
                stream, args);
}

}  // namespace tandem
