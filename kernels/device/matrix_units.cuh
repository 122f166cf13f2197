// A warp's product of two small matrices on a GPU's matrix units.
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
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

}  // namespace tandem

#endif  // TANDEM_KERNELS_DEVICE_MATRIX_UNITS_CUH_
