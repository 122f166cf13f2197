// Rows of an embedding table on a GPU. Each thread copies one element.
#include "kernels/device/bf16_rows.cuh"
#include "kernels/device/device_code.cuh"
#include "kernels/device/launch.h"
#include "kernels/embedding.h"

namespace tandem {
namespace {

constexpr unsigned kThreads = 256;

// Grid: (blocks of a row, rows).
template <DType kType>
__global__ void __launch_bounds__(kThreads) EmbedRow(EmbedArgs args) {
  WaitForEarlierKernels();
  const size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= args.size) return;
  const auto* const table = static_cast<const typename Weight<kType>::Stored*>(args.table);
  const size_t row = blockIdx.y;
  const size_t entry = args.ids == nullptr ? row : static_cast<size_t>(args.ids[row]);
  const size_t to = args.out_rows == nullptr ? row : static_cast<size_t>(args.out_rows[row]);
  const size_t stride = args.table_stride == 0 ? args.size : args.table_stride;
  const float value = Weight<kType>::Widen(table[entry * stride + i]);
  args.out[to * args.out_stride + i] = value;
  if (args.out_bf16.parts != nullptr) StoreBf16(args.out_bf16, blockIdx.y, i, value);
}

}  // namespace

absl::Status Embed(const EmbedArgs& args, CudaStream stream) {
  if (args.rows == 0) return absl::OkStatus();
  return WithType(args.dtype, [&](auto type) {
    return Launch("Embed", EmbedRow<decltype(type)::value>,
                  {.grid = dim3(static_cast<unsigned>((args.size + kThreads - 1) / kThreads),
                                static_cast<unsigned>(args.rows)),
                   .block = dim3(kThreads),
                   .starts_early = true},
                  stream, args);
  });
}

}  // namespace tandem
