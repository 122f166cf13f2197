// Rows of an embedding table as F32.
#ifndef TANDEM_KERNELS_EMBEDDING_H_
#define TANDEM_KERNELS_EMBEDDING_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/device/bf16_rows.h"
#include "kernels/device/stream.h"
#include "kernels/dtype.h"

namespace tandem {

// out[r] = table[ids[r]]. The result is exact, because every BF16 and F16 value is an F32 value.
// (Weights have no infinities and NaNs. In F16 they become large numbers if the CPU has no
// conversion instruction.)
//   table  [entries, size]  dtype, contiguous unless table_stride is given
//   ids    [rows]           i32, in [0, entries)
//   out    [rows, size]     f32, rows out_stride floats apart
// Nothing needs to be aligned. Runs in the caller.
struct EmbedArgs {
  const void* table = nullptr;
  DType dtype = DType::kBF16;
  size_t size = 0;
  const int32_t* ids = nullptr;  // on a GPU, null stands for 0, 1, …
  size_t rows = 0;
  float* out = nullptr;
  size_t out_stride = 0;
  // On a GPU alone: entries of the table lie so many values apart; 0: `size`.
  size_t table_stride = 0;
  // On a GPU alone: the rows in BF16 parts too, for a product.
  Bf16Rows out_bf16 = {};
  // On a GPU alone: [rows] i32. If it is given, row r of the output goes to row out_rows[r] of
  // `out`. PRECOND: all of them differ, and out_bf16 is not given.
  const int32_t* out_rows = nullptr;
};

void Embed(const EmbedArgs& args);

// The same on a GPU (embedding_cuda.cu). Pointers are device pointers. The work is enqueued on
// `stream`; the call does not wait. F16 infinities stay infinities. INTERNAL: the launch was
// refused.
absl::Status Embed(const EmbedArgs& args, CudaStream stream);

// The same, one value at a time, by the definition of the formats. Tests compare with it.
void EmbedReference(const EmbedArgs& args);

}  // namespace tandem

#endif  // TANDEM_KERNELS_EMBEDDING_H_
