// The gate of Llama's MLP on a GPU. Each thread computes one element.
#include "kernels/device/bf16_rows.cuh"
#include "kernels/device/device_code.cuh"
#include "kernels/device/launch.h"
#include "kernels/swiglu.h"

namespace tandem {
namespace {

constexpr unsigned kThreads = 256;

// Grid: (blocks of a row, rows).
__global__ void __launch_bounds__(kThreads) SwiGluRow(SwiGluArgs args) {
  WaitForEarlierKernels();
  const size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= args.size) return;
  float* const gate = args.gate + blockIdx.y * args.gate_stride + i;
  const float value = __fmul_rn(Silu(*gate), args.up[blockIdx.y * args.up_stride + i]);
  if (args.out_bf16.parts == nullptr) {
    *gate = value;
  } else {
    StoreBf16(args.out_bf16, blockIdx.y, i, value);
  }
}

}  // namespace

absl::Status SwiGlu(const SwiGluArgs& args, CudaStream stream) {
  if (args.rows == 0 || args.size == 0) return absl::OkStatus();
  return Launch("SwiGlu", SwiGluRow,
                {.grid = dim3(static_cast<unsigned>((args.size + kThreads - 1) / kThreads),
                              static_cast<unsigned>(args.rows)),
                 .block = dim3(kThreads),
                 .starts_early = true},
                stream, args);
}

}  // namespace tandem
