// Matrix product on a GPU with F32 or F16 weights, without matrix units. It is made for few rows
// (decode, verify), where reading the weights once is the limit. matmul_bf16/ handles BF16.
//
// A block of eight warps computes kFeatures features for each of its groups of warps. The warps of
// a group share the features and split in_features between them. A lane reads 16 bytes of a weight
// row at a time, so that a warp reads 512 bytes in a row, and every weight that is read is
// multiplied with all rows of x, which come from the L1 cache.
//
// out[m, n] is one chain of fused multiply-adds for each lane, over its k in ascending order, then
// a butterfly over the lanes, then a sum over the warps of the group in ascending order. Lanes and
// groups follow from in_features and out_features alone, so the bits do not depend on `rows` or on
// the batch.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/device/device_code.cuh"
#include "kernels/device/launch.h"
#include "kernels/matmul.h"
#include "kernels/matmul_bf16/matmul_bf16_cuda.h"

namespace tandem {
namespace {

constexpr int kWarps = 8;
constexpr int kFeatures = 4;   // features of a warp
constexpr int kStep = kEight;  // elements of a weight row that a lane takes at a time
constexpr int kMostRows = 8;   // largest number of rows of x in one pass over the weights

// Returns the number of parts that in_features is cut into. The sums of the parts are added at the
// end. Few output features have many parts, so that each multiprocessor of a large GPU has enough
// loads in flight.
int NumSlices(size_t out_features) {
  if (out_features <= 4096) return 8;
  return out_features <= 16384 ? 4 : 1;
}

// Grid: (blocks of features, blocks of kRows rows).
template <DType kType, int kRows>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    MatMulFewRows(MatMulArgs args, int num_slices) {
  const int groups = kWarps / num_slices;
  const int slice = Warp() % num_slices;
  const int group = Warp() / num_slices;
  const size_t first_feature = (size_t{blockIdx.x} * groups + group) * kFeatures;
  const size_t first_row = size_t{blockIdx.y} * kRows;
  const auto* const w = static_cast<const typename Weight<kType>::Stored*>(args.w);

  // Rows and features past the end are computed as copies of the last ones, and not written.
  const float* x[kRows];
  for (int m = 0; m < kRows; ++m) {
    const size_t row = first_row + m < args.rows ? first_row + m : args.rows - 1;
    x[m] = args.x + row * args.x_stride;
  }
  const typename Weight<kType>::Stored* rows_of_w[kFeatures];
  for (int f = 0; f < kFeatures; ++f) {
    const size_t feature =
        first_feature + f < args.out_features ? first_feature + f : args.out_features - 1;
    rows_of_w[f] = w + feature * args.in_features;
  }

  float sums[kRows][kFeatures] = {};
  for (size_t k = (size_t{static_cast<unsigned>(slice)} * kWarpSize + Lane()) * kStep;
       k < args.in_features; k += size_t{static_cast<unsigned>(num_slices)} * kWarpSize * kStep) {
    float weights[kFeatures][kStep];
    for (int f = 0; f < kFeatures; ++f)
      LoadEight<kType, Reads::kOnce>(rows_of_w[f] + k, weights[f]);
    for (int m = 0; m < kRows; ++m) {
      const float4 low = __ldg(reinterpret_cast<const float4*>(x[m] + k));
      const float4 high = __ldg(reinterpret_cast<const float4*>(x[m] + k) + 1);
      const float values[kStep] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
      for (int f = 0; f < kFeatures; ++f) {
        for (int i = 0; i < kStep; ++i)
          sums[m][f] = __fmaf_rn(values[i], weights[f][i], sums[m][f]);
      }
    }
  }

  float* const shared = SharedMemory<float>();  // [kWarps, kRows, kFeatures]
  for (int m = 0; m < kRows; ++m) {
    for (int f = 0; f < kFeatures; ++f) {
      const float sum = WarpSum(sums[m][f]);
      if (Lane() == 0) shared[(Warp() * kRows + m) * kFeatures + f] = sum;
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < groups * kRows * kFeatures;
       i += kWarps * kWarpSize) {
    const int f = i % kFeatures;
    const int m = i / kFeatures % kRows;
    const int of_group = i / kFeatures / kRows;
    const size_t feature = (size_t{blockIdx.x} * groups + of_group) * kFeatures + f;
    const size_t row = first_row + m;
    if (feature >= args.out_features || row >= args.rows) continue;
    float sum = 0;
    for (int warp = of_group * num_slices; warp < (of_group + 1) * num_slices; ++warp) {
      sum = __fadd_rn(sum, shared[(warp * kRows + m) * kFeatures + f]);
    }
    if (args.bias != nullptr) sum = __fadd_rn(sum, args.bias[feature]);
    float* const out = args.out + row * args.out_stride + feature;
    *out = args.add_to_out ? __fadd_rn(*out, sum) : sum;
  }
}

template <DType kType, int kRows>
absl::Status LaunchFewRows(const MatMulArgs& args, CudaStream stream) {
  const int slices = NumSlices(args.out_features);
  const size_t features = size_t{kFeatures} * (kWarps / slices);
  LaunchShape shape;
  shape.grid = dim3(static_cast<unsigned>((args.out_features + features - 1) / features),
                    static_cast<unsigned>((args.rows + kRows - 1) / kRows));
  shape.block = dim3(kWarps * kWarpSize);
  shape.shared_bytes = kWarps * kRows * kFeatures * sizeof(float);
  return Launch("MatMul", MatMulFewRows<kType, kRows>, shape, stream, args, slices);
}

template <DType kType>
absl::Status LaunchRows(const MatMulArgs& args, CudaStream stream) {
  if (args.rows == 1) return LaunchFewRows<kType, 1>(args, stream);
  if (args.rows == 2) return LaunchFewRows<kType, 2>(args, stream);
  if (args.rows <= 4) return LaunchFewRows<kType, 4>(args, stream);
  return LaunchFewRows<kType, kMostRows>(args, stream);
}

bool IsAligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

}  // namespace

absl::Status MatMul(const MatMulArgs& args, CudaStream stream) {
  if (args.rows == 0 || args.out_features == 0) return absl::OkStatus();
  if (args.dtype == DType::kBF16) return MatMulBf16(args, stream);
  if (args.in_features % kStep != 0 || !IsAligned(args.w) || args.x_stride % 4 != 0 ||
      !IsAligned(args.x)) {
    return absl::InvalidArgumentError(
        absl::StrCat("MatMul on a GPU: in_features ", args.in_features, " (a multiple of ", kStep,
                     "), x_stride ", args.x_stride, " (of 4), x and w at multiples of 16 bytes"));
  }
  return args.dtype == DType::kF16 ? LaunchRows<DType::kF16>(args, stream)
                                   : LaunchRows<DType::kF32>(args, stream);
}

}  // namespace tandem
