// row::SortKey on a device, and functions that need only keys. Ascending keys are descending
// values, and ascending ids among equals.
#ifndef TANDEM_KERNELS_SAMPLING_TRANSFORM_SORT_KEY_CUH_
#define TANDEM_KERNELS_SAMPLING_TRANSFORM_SORT_KEY_CUH_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/device/device_code.cuh"

namespace tandem {

__device__ inline uint64_t DeviceSortKey(float value, uint32_t id) {
  const uint32_t bits = __float_as_uint(__fadd_rn(value, 0.0f));  // -0 becomes +0
  const uint32_t ascending = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<uint64_t>(~ascending) << 32 | id;
}

__device__ inline int32_t IdOfKey(uint64_t key) {
  return static_cast<int32_t>(static_cast<uint32_t>(key));
}
__device__ inline float ValueOfKey(uint64_t key) {
  const uint32_t ascending = ~static_cast<uint32_t>(key >> 32);
  return __uint_as_float((ascending >> 31) != 0 ? ascending & 0x7FFFFFFFu : ~ascending);
}

// Returns the smallest key of a row that is larger than `past` (0: the smallest key of all), or all
// ones if there is none. The whole thread block computes it. With `past` 0, its id is the row's
// argmax, with the lowest id among equals.
//   scratch  [32]  shared memory that may be used again at once
__device__ inline uint64_t SmallestKey(const float* values, size_t size, uint64_t past,
                                       uint64_t* scratch) {
  uint64_t best = ~uint64_t{0};
  for (size_t i = threadIdx.x; i < size; i += blockDim.x) {
    const uint64_t key = DeviceSortKey(values[i], static_cast<uint32_t>(i));
    if (key < best && (past == 0 || key > past)) best = key;
  }
  return BlockMin(best, scratch);
}

}  // namespace tandem

#endif  // TANDEM_KERNELS_SAMPLING_TRANSFORM_SORT_KEY_CUH_
