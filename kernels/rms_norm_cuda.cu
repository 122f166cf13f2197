// Root-mean-square normalization on a GPU: a block of threads for each head of each row.
//
// A thread has four neighboring elements at a time, and reads them at once where they are aligned.
// The number of threads follows from the size alone, because the order of the sums depends on it.
#include "kernels/device/bf16_rows.cuh"
#include "kernels/device/device_code.cuh"
#include "kernels/device/launch.h"
#include "kernels/rms_norm.h"

namespace tandem {
namespace {

constexpr unsigned kFew = 128;    // threads for heads
constexpr unsigned kMany = 1024;  // threads for rows
constexpr size_t kLargestForFew = 512;
constexpr size_t kFour = 4;

struct Four {
  float values[kFour];
};

// Loads elements [i, i + 4) of a row of `size`. Elements past the end are 0.
__device__ inline Four LoadFour(const float* row, size_t i, size_t size, bool is_aligned) {
  if (is_aligned) {
    const float4 four = *reinterpret_cast<const float4*>(row + i);
    return {{four.x, four.y, four.z, four.w}};
  }
  Four four = {};
  TANDEM_UNROLL
  for (size_t j = 0; j < kFour; ++j) {
    if (i + j < size) four.values[j] = row[i + j];
  }
  return four;
}

__device__ inline bool IsAligned(const float* row, size_t size) {
  return reinterpret_cast<uintptr_t>(row) % (kFour * sizeof(float)) == 0 && size % kFour == 0;
}

// Grid: (rows, heads).
__global__ void __launch_bounds__(kMany) RmsNormHead(RmsNormArgs args) {
  WaitForEarlierKernels();
  const float* const x = args.x + blockIdx.x * args.x_stride + blockIdx.y * args.size;
  const size_t out_row =
      args.out_rows == nullptr ? blockIdx.x : static_cast<size_t>(args.out_rows[blockIdx.x]);
  float* const out = args.out + out_row * args.out_stride + blockIdx.y * args.size;
  const size_t step = blockDim.x * kFour;
  const bool is_aligned = IsAligned(x, args.size);
  float sum = 0;
  for (size_t i = threadIdx.x * kFour; i < args.size; i += step) {
    const Four four = LoadFour(x, i, args.size, is_aligned);
    TANDEM_UNROLL
    for (const float value : four.values) sum = __fmaf_rn(value, value, sum);
  }
  sum = BlockSum(sum, SharedMemory<float>());
  const float mean = __fdiv_rn(sum, static_cast<float>(args.size));
  const float scale = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, args.eps)));
  for (size_t i = threadIdx.x * kFour; i < args.size; i += step) {
    const Four four = LoadFour(x, i, args.size, is_aligned);
    TANDEM_UNROLL
    for (size_t j = 0; j < kFour; ++j) {
      if (i + j >= args.size) break;
      const float value = __fmul_rn(__fmul_rn(four.values[j], scale), args.weight[i + j]);
      if (args.out_bf16.parts == nullptr) {
        out[i + j] = value;
      } else {
        StoreBf16(args.out_bf16, blockIdx.x, i + j, value);
      }
    }
  }
}

}  // namespace

absl::Status RmsNorm(const RmsNormArgs& args, CudaStream stream) {
  if (args.rows == 0) return absl::OkStatus();
  return Launch(
      "RmsNorm", RmsNormHead,
      {.grid = dim3(static_cast<unsigned>(args.rows), static_cast<unsigned>(args.num_heads)),
       .block = dim3(args.size <= kLargestForFew ? kFew : kMany),
       .shared_bytes = kWarpSize * sizeof(float),
       .starts_early = true},
      stream, args);
}

}  // namespace tandem
