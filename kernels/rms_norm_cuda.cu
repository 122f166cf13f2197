// Root-mean-square normalisation on a GPU: a block a row.
#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/rms_norm.h"

namespace tandem {
namespace {

constexpr int kThreads = 256;  // always: what a thread sums up depends on it

__global__ void __launch_bounds__(kThreads) RmsNormRow(RmsNormArgs args) {
  const float* const x = args.x + blockIdx.x * args.x_stride;
  float* const out = args.out + blockIdx.x * args.out_stride;
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
  return Launch("RmsNorm", RmsNormRow,
                {dim3(static_cast<unsigned>(args.rows)), dim3(kThreads), kWarpSize * sizeof(float)},
                stream, args);
}

}  // namespace tandem
