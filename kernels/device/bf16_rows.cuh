// Writes rows in BF16 parts on a device.
#ifndef TANDEM_KERNELS_DEVICE_BF16_ROWS_CUH_
#define TANDEM_KERNELS_DEVICE_BF16_ROWS_CUH_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/device/bf16_rows.h"
#include "kernels/device/device_code.cuh"

namespace tandem {

// Writes element i of a row.
__device__ inline void StoreBf16(const Bf16Rows& to, size_t row, size_t i, float value) {
  uint16_t* part = to.parts + row * to.stride + i;
  if (to.num_parts == 1) {
    *part = Weight<DType::kBF16>::Narrow(value);
    return;
  }
  TANDEM_UNROLL
  for (int p = 0; p < kMostBf16Parts; ++p, part += to.part_stride) {
    const unsigned leading = __float_as_uint(value) & 0xFFFF0000u;
    *part = static_cast<uint16_t>(leading >> 16);
    value = __fadd_rn(value, -__uint_as_float(leading));
  }
}

}  // namespace tandem

#endif  // TANDEM_KERNELS_DEVICE_BF16_ROWS_CUH_
