// Rows of an embedding table as F32.
#ifndef TANDEM_KERNELS_EMBEDDING_H_
#define TANDEM_KERNELS_EMBEDDING_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda/stream.h"
#include "kernels/dtype.h"

namespace tandem {

// out[r] = table[ids[r]], exactly: every BF16 and F16 value is an F32 value. (F16 infinities and
// NaNs, which no weight has, become large numbers where the CPU has no conversion of its own.)
//   table  [entries, size]  dtype, contiguous
//   ids    [rows]           i32, in [0, entries)
//   out    [rows, size]     f32, rows out_stride floats apart
// Nothing needs to be aligned. Runs in the caller.
struct EmbedArgs {
  const void* table = nullptr;
  DType dtype = DType::kBF16;
  size_t size = 0;
  const int32_t* ids = nullptr;
  size_t rows = 0;
  float* out = nullptr;
  size_t out_stride = 0;
};

void Embed(const EmbedArgs& args);

// The same on a GPU (embedding_cuda.cu): pointers are of device memory; enqueued on `stream`,
// nothing waits. F16 infinities stay what they are. INTERNAL: the launch was refused.
absl::Status Embed(const EmbedArgs& args, CudaStream stream);

// The same one value at a time, by the definition of the formats: what tests compare with.
void EmbedReference(const EmbedArgs& args);

}  // namespace tandem

#endif  // TANDEM_KERNELS_EMBEDDING_H_
