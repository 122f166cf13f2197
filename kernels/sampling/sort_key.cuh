// row::SortKey on a device: ascending keys are descending values, and ascending ids among equals.
#ifndef TANDEM_KERNELS_SAMPLING_SORT_KEY_CUH_
#define TANDEM_KERNELS_SAMPLING_SORT_KEY_CUH_

#include <cuda_runtime.h>

#include <cstdint>

namespace tandem {

__device__ inline uint64_t DeviceSortKey(float value, uint32_t id) {
  const uint32_t bits = __float_as_uint(__fadd_rn(value, 0.0f));  // -0 becomes +0
  const uint32_t ascending = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<uint64_t>(~ascending) << 32 | id;
}

}  // namespace tandem

#endif  // TANDEM_KERNELS_SAMPLING_SORT_KEY_CUH_
