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

__device__ inline float AddSquares(const Four& four, float sum) {
  TANDEM_UNROLL
  for (const float value : four.values) sum = __fmaf_rn(value, value, sum);
  return sum;
}

// Where the normalized elements of one head of one row go.
struct Output {
  float* floats;
  Bf16Rows parts;  // if given, `floats` is not written
  size_t row;
  size_t size;

  __device__ void Write(size_t i, const Four& x, float scale, const Four& weights) const {
    TANDEM_UNROLL
    for (size_t j = 0; j < kFour; ++j) {
      if (i + j >= size) break;
      const float value = __fmul_rn(__fmul_rn(x.values[j], scale), weights.values[j]);
      if (parts.parts == nullptr) {
        floats[i + j] = value;
      } else {
        StoreBf16(parts, row, i + j, value);
      }
    }
  }
};

// A thread keeps its first elements, and it loads their weights before the row is known. So nothing
// is read after the sum, except in rows of more than kHeld * kFour * kMany elements.
// Grid: (rows, heads).
__global__ void __launch_bounds__(kMany) RmsNormHead(RmsNormArgs args) {
  constexpr size_t kHeld = 4;
  const float* const x = args.x + blockIdx.x * args.x_stride + blockIdx.y * args.size;
  const size_t first = threadIdx.x * kFour;
  const size_t step = blockDim.x * kFour;
  const size_t rest = first + kHeld * step;
  const bool weights_are_aligned = IsAligned(args.weight, args.size);
  Four weights[kHeld];
  TANDEM_UNROLL
  for (size_t p = 0; p < kHeld; ++p) {
    if (first + p * step >= args.size) break;
    weights[p] = LoadFour(args.weight, first + p * step, args.size, weights_are_aligned);
  }
  WaitForEarlierKernels();

  const bool is_aligned = IsAligned(x, args.size);
  Four held[kHeld];
  float sum = 0;
  TANDEM_UNROLL
  for (size_t p = 0; p < kHeld; ++p) {
    if (first + p * step >= args.size) break;
    held[p] = LoadFour(x, first + p * step, args.size, is_aligned);
  }
  TANDEM_UNROLL
  for (size_t p = 0; p < kHeld; ++p) {
    if (first + p * step >= args.size) break;
    sum = AddSquares(held[p], sum);
  }
  for (size_t i = rest; i < args.size; i += step) {
    sum = AddSquares(LoadFour(x, i, args.size, is_aligned), sum);
  }
  sum = BlockSum(sum, SharedMemory<float>());
  const float mean = __fdiv_rn(sum, static_cast<float>(args.size));
  const float scale = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, args.eps)));

  const size_t out_row =
      args.out_rows == nullptr ? blockIdx.x : static_cast<size_t>(args.out_rows[blockIdx.x]);
  const Output out = {args.out + out_row * args.out_stride + blockIdx.y * args.size, args.out_bf16,
                      blockIdx.x, args.size};
  TANDEM_UNROLL
  for (size_t p = 0; p < kHeld; ++p) {
    if (first + p * step >= args.size) break;
    out.Write(first + p * step, held[p], scale, weights[p]);
  }
  for (size_t i = rest; i < args.size; i += step) {
    out.Write(i, LoadFour(x, i, args.size, is_aligned), scale,
              LoadFour(args.weight, i, args.size, weights_are_aligned));
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
