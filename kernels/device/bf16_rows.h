// Rows of activations in BF16, as a GPU's matrix units take them.
#ifndef TANDEM_KERNELS_DEVICE_BF16_ROWS_H_
#define TANDEM_KERNELS_DEVICE_BF16_ROWS_H_

#include <cstddef>
#include <cstdint>

namespace tandem {

// A row is the sum of its parts. With one part, it is rounded to the nearest BF16, with ties to
// even, as other engines do. With three parts, it is exact (24 bits as 8 + 8 + 8; values under
// 2^-110 lose the bits that BF16 cannot hold). A value that is not finite has a part that is not
// finite.
//   parts  [num_parts, rows, size]  BF16 in device memory, 16-byte aligned. Parts are part_stride
//                                   elements apart, and rows are `stride` elements apart. Both are
//                                   multiples of 8
struct Bf16Rows {
  uint16_t* parts = nullptr;
  size_t stride = 0;
  size_t part_stride = 0;
  int num_parts = 1;  // 1 or 3

  constexpr Bf16Rows FromRow(size_t row) const {
    return {parts + row * stride, stride, part_stride, num_parts};
  }
};

inline constexpr int kMostBf16Parts = 3;

}  // namespace tandem

#endif  // TANDEM_KERNELS_DEVICE_BF16_ROWS_H_
