// The step of a residual layer with SiLU on a GPU. Each thread computes one element.
#include "kernels/add_silu.h"
#include "kernels/device/bf16_rows.cuh"
#include "kernels/device/device_code.cuh"
#include "kernels/device/launch.h"

namespace tandem {
namespace {

constexpr unsigned kThreads = 256;

// Grid: (blocks of a row, rows).
__global__ void __launch_bounds__(kThreads) AddSiluRow(AddSiluArgs args) {
  WaitForEarlierKernels();
  const size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= args.size) return;
  float* const y = args.y + blockIdx.y * args.y_stride + i;
  const float value = __fadd_rn(args.x[blockIdx.y * args.x_stride + i], Silu(*y));
  *y = value;
  if (args.out_bf16.parts != nullptr) StoreBf16(args.out_bf16, blockIdx.y, i, value);
}

}  // namespace

absl::Status AddSilu(const AddSiluArgs& args, CudaStream stream) {
  if (args.rows == 0 || args.size == 0) return absl::OkStatus();
  return Launch("AddSilu", AddSiluRow,
                {.grid = dim3(static_cast<unsigned>((args.size + kThreads - 1) / kThreads),
                              static_cast<unsigned>(args.rows)),
                 .block = dim3(kThreads),
                 .starts_early = true},
                stream, args);
}

}  // namespace tandem
