// Products with BF16 weights for more than 64 rows (prompts). A thread block computes 64 features
// of 64 rows, and both weights and x go through shared memory by copies that run ahead.
#include "kernels/device/async_copy.cuh"
#include "kernels/device/device_code.cuh"
#include "kernels/device/launch.h"
#include "kernels/matmul_bf16/forms.cuh"
#include "kernels/matmul_bf16/fragments.cuh"
#include "kernels/matmul_bf16/rows.h"

namespace tandem::bf16_product {
namespace {

constexpr int kBlockFeatures = 64;  // features in a thread block; a warp has half of them
constexpr int kBlockRows = 64;      // rows in a thread block; a warp has half of them
constexpr int kBlockWarps = 4;
constexpr int kBlockThreads = kBlockWarps * kWarpSize;
constexpr int kWarpFragments = kBlockFeatures / 2 / kFeatures;
constexpr int kWarpTiles = kBlockRows / 2 / kColumns;

using WarpSums = float[kWarpFragments][kWarpTiles][4];

// Copies of a thread block's weights and values that run ahead. A stage holds the block's weights
// of a step, and then each part of its values.
template <typename Form, int kParts, int kStages>
class BlockRing {
 public:
  static constexpr int kPieces = (kBlockFeatures + kParts * kBlockRows) * kPiecesOfStep;

  __device__ BlockRing(const Form& form, size_t first_row, size_t first_pair)
      : form_(form), args_(form.product), first_row_(first_row), first_pair_(first_pair) {}

  // Begins to copy the weights of a step, or the values of a step.
  __device__ void FetchWeights(unsigned step) const {
    TANDEM_UNROLL
    for (int i = 0; i < kBlockFeatures / kRowsOfCopy; ++i) {
      const int row = i * kRowsOfCopy + MyRow();
      const int pair = row / kFeatures * kPairs + row % kPairs;
      Copy(Stage(step), row, step,
           WeightRow(args_, form_.Feature(first_pair_ + static_cast<size_t>(pair),
                                          row % kFeatures >= kPairs)));
    }
  }
  __device__ void FetchValues(unsigned step) const {
    TANDEM_UNROLL
    for (int part = 0; part < kParts; ++part) {
      uint4* const to = Stage(step) + (kBlockFeatures + part * kBlockRows) * kPiecesOfStep;
      TANDEM_UNROLL
      for (int i = 0; i < kBlockRows / kRowsOfCopy; ++i) {
        const int row = i * kRowsOfCopy + MyRow();
        Copy(to, row, step,
             ValueRow(args_, first_row_ + static_cast<size_t>(row)) +
                 static_cast<size_t>(part) * args_.x_bf16.part_stride);
      }
    }
  }

  // Returns a lane's words of rows of a step.
  __device__ WeightWords Weights(unsigned step, int row, int piece) const {
    const uint4* const from = Stage(step);
    return {from[PlaceOf(row, piece)], from[PlaceOf(row + 8, piece)]};
  }
  __device__ void Values(unsigned step, int row, int piece, uint4 (&values)[kParts]) const {
    TANDEM_UNROLL
    for (int part = 0; part < kParts; ++part) {
      values[part] =
          Stage(step)[(kBlockFeatures + part * kBlockRows) * kPiecesOfStep + PlaceOf(row, piece)];
    }
  }

 private:
  static constexpr int kRowsOfCopy = kBlockThreads / kPiecesOfStep;

  __device__ static int MyRow() { return static_cast<int>(threadIdx.x) / kPiecesOfStep; }
  __device__ static uint4* Stage(unsigned step) {
    return SharedMemory<uint4>() + step % kStages * kPieces;
  }
  __device__ void Copy(uint4* to, int row, unsigned step, const uint16_t* from) const {
    const int piece = static_cast<int>(threadIdx.x) % kPiecesOfStep;
    const size_t k = size_t{step} * kStep + static_cast<size_t>(piece) * kOfPiece;
    const bool there = k < args_.in_features;
    CopyAsync16(to + PlaceOf(row, piece), from + (there ? k : 0), there);
  }

  const Form& form_;
  const MatMulArgs& args_;
  const size_t first_row_;
  const size_t first_pair_;
};

// Adds the products of a step to a warp's sums.
//   feature, row  of the warp's first in the thread block
template <typename Form, int kParts, int kStages>
__device__ inline void MultiplyStep(const BlockRing<Form, kParts, kStages>& ring, unsigned step,
                                    int feature, int row, WarpSums& sums) {
  const int g = Lane() / 4;
  TANDEM_UNROLL
  for (int chunk = 0; chunk < 2; ++chunk) {
    const int piece = chunk * kPiecesOfChunk + Lane() % 4;
    WeightWords weights[kWarpFragments];
    TANDEM_UNROLL
    for (int fragment = 0; fragment < kWarpFragments; ++fragment) {
      weights[fragment] = ring.Weights(step, feature + fragment * kFeatures + g, piece);
    }
    TANDEM_UNROLL
    for (int tile = 0; tile < kWarpTiles; ++tile) {
      uint4 values[kParts];
      ring.Values(step, row + tile * kColumns + g, piece, values);
      TANDEM_UNROLL
      for (int half = 0; half < kHalves; ++half) {
        TANDEM_UNROLL
        for (int fragment = 0; fragment < kWarpFragments; ++fragment) {
          MultiplyHalf<kParts>(weights[fragment], values, half, sums[fragment][tile]);
        }
      }
    }
  }
}

// Adds the sums of a slice to the totals. The sums of the next slice begin with 0.
__device__ inline void AddSlice(WarpSums& sums, WarpSums& totals) {
  TANDEM_UNROLL
  for (int fragment = 0; fragment < kWarpFragments; ++fragment) {
    TANDEM_UNROLL
    for (int tile = 0; tile < kWarpTiles; ++tile) {
      TANDEM_UNROLL
      for (int i = 0; i < 4; ++i) {
        totals[fragment][tile][i] = __fadd_rn(totals[fragment][tile][i], sums[fragment][tile][i]);
        sums[fragment][tile][i] = 0;
      }
    }
  }
}

// Finishes a lane's totals. `row` and `pair` are those of the lane's first total.
template <typename Form>
__device__ inline void FinishTotals(const Form& form, size_t row, size_t pair,
                                    const WarpSums& totals) {
  TANDEM_UNROLL
  for (int fragment = 0; fragment < kWarpFragments; ++fragment) {
    TANDEM_UNROLL
    for (int tile = 0; tile < kWarpTiles; ++tile) {
      TANDEM_UNROLL
      for (int i = 0; i < 2; ++i) {
        LoadAndFinish(form, row + tile * kColumns + i, pair + fragment * kPairs,
                      {totals[fragment][tile][i], totals[fragment][tile][i + 2]});
      }
    }
  }
}

// Grid: (blocks of rows, blocks of features), so that blocks that share weights run at the same
// time.
//   shared  [kStages, BlockRing::kPieces] of 16 bytes
template <typename Form, int kParts, int kStages>
__global__ void __launch_bounds__(kBlockThreads, 2) MatMulManyRowsBf16(Form form) {
  const size_t first_row = size_t{blockIdx.x} * kBlockRows;
  const size_t first_pair = size_t{blockIdx.y} * (kBlockFeatures / 2);
  const int feature = Warp() % 2 * (kWarpFragments * kFeatures);
  const int row = Warp() / 2 * (kWarpTiles * kColumns);
  const BlockRing<Form, kParts, kStages> ring(form, first_row, first_pair);
  const unsigned num_steps = NumSteps(form.product.in_features);
  TANDEM_UNROLL
  for (unsigned step = 0; step + 1 < kStages; ++step) {
    if (step < num_steps) ring.FetchWeights(step);
  }
  WaitForEarlierKernels();
  TANDEM_UNROLL
  for (unsigned step = 0; step + 1 < kStages; ++step) {
    if (step < num_steps) ring.FetchValues(step);
    EndCopyGroup();  // the first group has the weights of all these steps
  }

  WarpSums totals = {};
  WarpSums sums = {};
  unsigned slice = 0;
  for (unsigned step = 0; step < num_steps; ++step) {
    WaitForCopyGroups<kStages - 2>();
    __syncthreads();  // this step is there, and the one before it has been read
    if (const unsigned next = step + kStages - 1; next < num_steps) {
      ring.FetchWeights(next);
      ring.FetchValues(next);
    }
    EndCopyGroup();
    MultiplyStep(ring, step, feature, row, sums);
    // A slice without steps would add 0, which changes nothing.
    while (SliceBegin(slice + 1, num_steps) <= step) ++slice;
    if (step + 1 == SliceBegin(slice + 1, num_steps)) AddSlice(sums, totals);
  }
  FinishTotals(form, first_row + static_cast<size_t>(row + Lane() % 4 * 2),
               first_pair + static_cast<size_t>(feature / 2 + Lane() / 4), totals);
}

template <int kParts, int kStages, typename Form>
absl::Status LaunchManyRows(const Form& form, CudaStream stream) {
  const LaunchShape shape = {
      .grid =
          dim3(static_cast<unsigned>((form.product.rows + kBlockRows - 1) / kBlockRows),
               static_cast<unsigned>((2 * form.NumPairs() + kBlockFeatures - 1) / kBlockFeatures)),
      .block = dim3(kBlockThreads),
      .shared_bytes = size_t{kStages} * BlockRing<Form, kParts, kStages>::kPieces * sizeof(uint4),
      .starts_early = true};
  auto* const kernel = MatMulManyRowsBf16<Form, kParts, kStages>;
  if (absl::Status status = AllowSharedMemory(kernel, shape.shared_bytes); !status.ok()) {
    return status;
  }
  return Launch("MatMul", kernel, shape, stream, form);
}

}  // namespace

template <typename Form>
absl::Status MatMulManyRows(const Form& form, CudaStream stream) {
  return form.product.x_bf16.num_parts == 1 ? LaunchManyRows<1, 4>(form, stream)
                                            : LaunchManyRows<kMostBf16Parts, 3>(form, stream);
}
template absl::Status MatMulManyRows(const PlainForm& form, CudaStream stream);
template absl::Status MatMulManyRows(const GateForm& form, CudaStream stream);
template absl::Status MatMulManyRows(const RopeForm& form, CudaStream stream);

}  // namespace tandem::bf16_product
