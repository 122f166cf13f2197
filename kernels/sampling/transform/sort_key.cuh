// row::SortKey on a device, and functions that need only keys. Ascending keys are descending
// values, and ascending ids among equals.
#ifndef TANDEM_KERNELS_SAMPLING_TRANSFORM_SORT_KEY_CUH_
#define TANDEM_KERNELS_SAMPLING_TRANSFORM_SORT_KEY_CUH_

#include <cuda_runtime.h>

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/device/device_code.cuh"
#include "kernels/sampling/transform/row_scan.cuh"

namespace tandem {

// Returns the upper half of a key, which depends on the value alone.
__device__ inline uint32_t UpperOfKey(float value) {
  const uint32_t bits = __float_as_uint(__fadd_rn(value, 0.0f));  // -0 becomes +0
  const uint32_t ascending = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  return ~ascending;
}
__device__ inline uint64_t DeviceSortKey(float value, uint32_t id) {
  return static_cast<uint64_t>(UpperOfKey(value)) << 32 | id;
}

__device__ inline int32_t IdOfKey(uint64_t key) {
  return static_cast<int32_t>(static_cast<uint32_t>(key));
}
__device__ inline float ValueOfKey(uint64_t key) {
  const uint32_t ascending = ~static_cast<uint32_t>(key >> 32);
  return __uint_as_float((ascending >> 31) != 0 ? ascending & 0x7FFFFFFFu : ~ascending);
}

// The smallest key of those that a thread meets, in ascending order of the ids.
struct SmallestOfThread {
  uint32_t upper = ~uint32_t{0};
  uint32_t id = ~uint32_t{0};

  __device__ void Meet(float value, uint32_t of_id) {
    const uint32_t of_value = UpperOfKey(value);
    if (of_value >= upper) return;
    upper = of_value;
    id = of_id;
  }
  __device__ uint64_t Key() const { return static_cast<uint64_t>(upper) << 32 | id; }
};

// Returns the smallest key of a row that is larger than `past` (0: the smallest key of all), or all
// ones if there is none. The whole thread block computes it in one pass over the row. With `past`
// 0, its id is the row's argmax, with the lowest id among equals.
//   scratch  [32]  shared memory that may be used again at once
__device__ inline uint64_t SmallestKey(const float* values, size_t size, uint64_t past,
                                       uint64_t* scratch) {
  SmallestOfThread smallest;
  if (past == 0) {
    ScanRow(values, size, -INFINITY, [&](unsigned i, float value) {
      if (i < size) smallest.Meet(value, i);
    });
  } else {
    ScanRow(values, size, -INFINITY, [&](unsigned i, float value) {
      if (i < size && DeviceSortKey(value, i) > past) smallest.Meet(value, i);
    });
  }
  return BlockMin(smallest.Key(), scratch);
}

}  // namespace tandem

#endif  // TANDEM_KERNELS_SAMPLING_TRANSFORM_SORT_KEY_CUH_
