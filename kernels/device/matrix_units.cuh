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

// Loads four matrices M [8, 8] of BF16 from shared memory: ldmatrix.sync.m8n8.x4 (PTX ISA 6.5,
// "Warp-level matrix load instruction: ldmatrix"; compute capability 7.5). All lanes of a warp take
// part. Lane 8 i + r says where row r of matrix i begins; a row is 16 bytes, 16-byte aligned. Of
// matrix i, lane 4 g + t gets in words[i]:
//   M[g][2t, 2t+1]                          kTransposed == false
//   M[2t][g] and M[2t+1][g]                 kTransposed == true
// The first value is in the lower half.
template <bool kTransposed>
__device__ inline void LoadMatrices(const void* shared_row, uint32_t (&words)[4]) {
#ifdef TANDEM_SIMT
  simt::LoadMatrices(shared_row, kTransposed, words);
#else
  const auto from = static_cast<unsigned>(__cvta_generic_to_shared(shared_row));
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(from)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(from)
                 : "memory");
  }
#endif
}

// Rounds two values to BF16, ties to even: cvt.rn.bf16x2.f32 (PTX ISA 7.0, compute capability 8.0).
// The first one is in the lower half of the word. Which NaN a NaN becomes is open.
__device__ inline uint32_t PackBf16(float first, float second) {
#ifdef TANDEM_SIMT
  return Weight<DType::kBF16>::Narrow(first) |
         static_cast<uint32_t>(Weight<DType::kBF16>::Narrow(second)) << 16;
#else
  uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  return word;
#endif
}

}  // namespace tandem

#endif  // TANDEM_KERNELS_DEVICE_MATRIX_UNITS_CUH_
