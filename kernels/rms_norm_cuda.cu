// Root-mean-square normalization on a GPU: a block of threads for each head of each row.
#include "kernels/device/device_code.cuh"
#include "kernels/device/launch.h"
#include "kernels/rms_norm.h"

namespace tandem {
namespace {

constexpr int kThreads = 256;  // constant, because the order of the sums depends on it

// Grid: (rows, heads).
__global__ void __launch_bounds__(kThreads) RmsNormHead(RmsNormArgs args) {
  const float* const x = args.x + blockIdx.x * args.x_stride + blockIdx.y * args.size;
  float* const out = args.out + blockIdx.x * args.out_stride + blockIdx.y * args.size;
  float sum = 0;
  for (size_t i = threadIdx.x; i < args.size; i += kThreads) sum = __fmaf_rn(x[i], x[i], sum);
  sum = BlockSum(sum, SharedMemory<float>());
  const float mean = __fdiv_rn(sum, static_cast<float>(args.size));
  const float scale = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, args.eps)));
  for (size_t i = threadIdx.x; i < args.size; i += kThreads) {
    out[i] = __fmul_rn(__fmul_rn(x[i], scale), args.weight[i]);
  }
}

}  // namespace

absl::Status RmsNorm(const RmsNormArgs& args, CudaStream stream) {
  if (args.rows == 0) return absl::OkStatus();
  const dim3 grid(static_cast<unsigned>(args.rows), static_cast<unsigned>(args.num_heads));
  return Launch("RmsNorm", RmsNormHead, {grid, dim3(kThreads), kWarpSize * sizeof(float)}, stream,
                args);
}

}  // namespace tandem
