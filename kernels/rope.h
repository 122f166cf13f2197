// Rotary position embedding (Su et al. 2021) in Hugging Face's layout: dimension i is rotated
// together with dimension i + head_size / 2. On a GPU, RopeAndStoreKv (kernels/attention.h) does
// the same.
#ifndef TANDEM_KERNELS_ROPE_H_
#define TANDEM_KERNELS_ROPE_H_

#include <cstddef>
#include <cstdint>

namespace tandem {

// Rotates every head of every row by the angles of the row's position, in place.
//   x          [rows, num_heads, head_size]  f32, rows x_stride floats apart, heads contiguous
//   positions  [rows]                        i32, in [0, positions of the table)
//   table      [positions, head_size]        f32, the cosines of the head_size / 2 angles, then
//                                            their sines
// Nothing needs to be aligned. Runs in the caller. Rows are independent. PRECOND: head_size is
// even.
struct RopeArgs {
  float* x = nullptr;
  size_t x_stride = 0;
  size_t rows = 0;
  size_t num_heads = 0;
  size_t head_size = 0;
  const int32_t* positions = nullptr;
  const float* table = nullptr;
};

void Rope(const RopeArgs& args);

// The same in plain loops over doubles. Tests compare with it.
void RopeReference(const RopeArgs& args);

}  // namespace tandem

#endif  // TANDEM_KERNELS_ROPE_H_
