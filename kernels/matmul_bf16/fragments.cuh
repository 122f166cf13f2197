// The order of sums of a matrix product with BF16 weights on a GPU's matrix units, for any number
// of rows (ADR 0017, ADR 0027). The rows of a prompt have the bits that decoding them one by one
// would give.
//
// x comes in one BF16 part (rounded) or in three (exact). Every product is exact, and only sums are
// rounded. in_features is cut into steps of 64 and these into kSlices slices. Within a slice
//   sum = 0; for its steps ascending: for both chunks of 32: for both halves of a chunk:
//   for the parts, the smallest first: sum += part
// Each += adds one product of fragments. Slices are added in ascending order, beginning with 0. The
// order follows from in_features alone. Features are the rows of a fragment, and rows of x are its
// columns. Neither rows nor columns affect each other.
//
// Both factors must agree on the k that a fragment's column holds, and may choose it freely. Lane
// 4 g + t has k = 8 t … 8 t + 7 of a chunk, so that it reads 16 bytes of a weight row at once.
#ifndef TANDEM_KERNELS_MATMUL_BF16_FRAGMENTS_CUH_
#define TANDEM_KERNELS_MATMUL_BF16_FRAGMENTS_CUH_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/device/device_code.cuh"
#include "kernels/device/matrix_units.cuh"
#include "kernels/matmul.h"

namespace tandem::bf16_product {

inline constexpr int kFeatures = 16;          // features in a fragment
inline constexpr int kPairs = kFeatures / 2;  // pairs of features in a fragment (see forms.cuh)
inline constexpr int kColumns = 8;            // columns of a fragment, which are rows of x
inline constexpr int kChunk = 32;             // number of k's of two fragments
inline constexpr int kStep = 2 * kChunk;      // number of k's that are copied at a time
inline constexpr int kOfPiece = 8;            // number of k's in 16 bytes
inline constexpr int kPiecesOfChunk = kChunk / kOfPiece;
inline constexpr int kPiecesOfStep = kStep / kOfPiece;
inline constexpr int kHalves = 2;
inline constexpr unsigned kSlices = 8;

// Returns the first step of a slice, and the number of steps for slice kSlices.
__device__ inline unsigned SliceBegin(unsigned slice, unsigned num_steps) {
  return slice * num_steps / kSlices;
}
__device__ inline unsigned NumSteps(size_t in_features) {
  return static_cast<unsigned>((in_features + kStep - 1) / kStep);
}

// Returns the place of a 16-byte piece of a row in shared memory. The rows of a step have 128 bytes
// each. Eight lanes read four pieces of two neighboring rows at a time, and should meet all banks.
__device__ inline int PlaceOf(int row, int piece) {
  return row * kPiecesOfStep + (piece ^ (row % 2 * kPiecesOfChunk));
}

// A lane's weights of a chunk, for features g and g + 8 of a fragment.
struct WeightWords {
  uint4 low, high;
};

// Returns 0 in a way that the compiler cannot see.
__device__ inline unsigned HiddenZero(const MatMulArgs& args) {
  return static_cast<unsigned>(args.rows >> 63);
}
// Returns the same words. The matrix units take four registers side by side, with words of both
// features. A read of 16 bytes fills four registers with words of one feature. The compiler would
// move them before each product, and moves these once.
__device__ inline WeightWords InNewRegisters(const WeightWords& words, unsigned hidden_zero) {
  const auto renew = [hidden_zero](const uint4& from) {
    return make_uint4(from.x ^ hidden_zero, from.y ^ hidden_zero, from.z ^ hidden_zero,
                      from.w ^ hidden_zero);
  };
  return {renew(words.low), renew(words.high)};
}

// Adds the products of one half of a chunk to a fragment's sums. No other function sums products.
//   values  [kParts]  a lane's values of one row of x
template <int kParts>
__device__ inline void MultiplyHalf(const WeightWords& weights, const uint4 (&values)[kParts],
                                    int half, float (&sums)[4]) {
  const uint32_t features[4] = {
      half == 0 ? weights.low.x : weights.low.z, half == 0 ? weights.high.x : weights.high.z,
      half == 0 ? weights.low.y : weights.low.w, half == 0 ? weights.high.y : weights.high.w};
  TANDEM_UNROLL
  for (int part = kParts - 1; part >= 0; --part) {
    const uint32_t columns[2] = {half == 0 ? values[part].x : values[part].z,
                                 half == 0 ? values[part].y : values[part].w};
    MultiplyFragments(features, columns, sums);
  }
}

// Returns the weights of a feature.
__device__ inline const uint16_t* WeightRow(const MatMulArgs& args, size_t feature) {
  return static_cast<const uint16_t*>(args.w) + feature * args.in_features;
}
// Returns the values of a row of x. Rows past the end are computed as copies of the last one, and
// not written.
__device__ inline const uint16_t* ValueRow(const MatMulArgs& args, size_t row) {
  return args.x_bf16.parts + (row < args.rows ? row : args.rows - 1) * args.x_bf16.stride;
}

}  // namespace tandem::bf16_product

#endif  // TANDEM_KERNELS_MATMUL_BF16_FRAGMENTS_CUH_
