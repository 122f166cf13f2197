// A warp's product of two small matrices on a GPU's matrix units, and the conversion of F32 values
// for such a product.
#ifndef TANDEM_KERNELS_DEVICE_MATRIX_UNITS_CUH_
#define TANDEM_KERNELS_DEVICE_MATRIX_UNITS_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/device/device_code.cuh"

namespace tandem {

// D += A · B with A [16, 16] and B [16, 8] of BF16 and D [16, 8] of F32: mma.sync.m16n8k16 (PTX ISA
// 8.0, "Matrix fragments for mma.m16n8k16 with floating point type"; compute capability 8.0). All
// lanes of a warp take part. A word holds two values, the first one in its lower half. Lane 4 g + t
// holds:
//   a  A[g][2t, 2t+1], A[g+8][2t, 2t+1], A[g][2t+8, 2t+9], A[g+8][2t+8, 2t+9]
//   b  B[2t, 2t+1][g], B[2t+8, 2t+9][g]
//   d  D[g][2t], D[g][2t+1], D[g+8][2t], D[g+8][2t+1]
// A column of D depends on the same column of B and on no other column. The products are exact. The
// hardware chooses how the sixteen products are summed, and always chooses the same.
__device__ inline void MultiplyFragments(const uint32_t (&a)[4], const uint32_t (&b)[2],
                                         float (&d)[4]) {
#ifdef TANDEM_SIMT
  simt::MultiplyFragments(a, b, d);
#else
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

inline constexpr int kParts = 3;

// Splits first and second exactly into sums of three BF16 values each (24 bits as 8 + 8 + 8; values
// under 2^-110 lose the bits that BF16 cannot hold). parts[0] has the leading values, and the lower
// halves hold the values of first. A value that is not finite has a part that is not finite.
__device__ inline void SplitPair(float first, float second, uint32_t (&parts)[kParts]) {
  TANDEM_UNROLL
  for (int i = 0; i < kParts; ++i) {
    const unsigned of_first = __float_as_uint(first) & 0xFFFF0000u;
    const unsigned of_second = __float_as_uint(second) & 0xFFFF0000u;
    parts[i] = of_first >> 16 | of_second;
    first = __fadd_rn(first, -__uint_as_float(of_first));
    second = __fadd_rn(second, -__uint_as_float(of_second));
  }
}

}  // namespace tandem

#endif  // TANDEM_KERNELS_DEVICE_MATRIX_UNITS_CUH_
