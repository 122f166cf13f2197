// Products with BF16 weights for more than 64 rows (prompts), where reading shared memory and the
// second-level cache are the limits. Both weights and x go through shared memory by copies that run
// ahead. A warp reads the words of its next multiplications while it multiplies.
#include "kernels/device/async_copy.cuh"
#include "kernels/device/device.h"
#include "kernels/device/device_code.cuh"
#include "kernels/device/launch.h"
#include "kernels/matmul_bf16/forms.cuh"
#include "kernels/matmul_bf16/fragments.cuh"
#include "kernels/matmul_bf16/rows.h"
#include "kernels/matmul_bf16/tiles.h"

namespace tandem::bf16_product {
namespace {

// The shape of a thread block.
//   kWarpFragments, kWarpTiles  fragments of features and tiles of rows of a warp
//   kFeatureWarps, kRowWarps    number of warps in both directions
//   kNumParts                   parts of x
//   kNumStages                  number of steps that the ring holds
//   kBlocks                     thread blocks that a multiprocessor should hold
template <int kWarpFragments, int kWarpTiles, int kFeatureWarps, int kRowWarps, int kNumParts,
          int kNumStages, int kBlocks>
struct BlockShape {
  static constexpr int kFragments = kWarpFragments;
  static constexpr int kTiles = kWarpTiles;
  static constexpr int kGroups = 2;  // groups of tiles whose values a lane reads at a time
  static constexpr int kGroupTiles = kTiles / kGroups;
  static_assert(kTiles % kGroups == 0 && kFragments % kGroups == 0);
  static constexpr int kWarpFeatures = kFragments * bf16_product::kFeatures;
  static constexpr int kWarpRows = kTiles * kColumns;
  static constexpr int kFeatures = kFeatureWarps * kWarpFeatures;
  static constexpr int kRows = kRowWarps * kWarpRows;
  static constexpr int kThreads = kFeatureWarps * kRowWarps * kWarpSize;
  static constexpr int kParts = kNumParts;
  static constexpr int kStages = kNumStages;
  static constexpr int kMinBlocks = kBlocks;
  // A stage holds the weights of a step, and then each part of its values.
  static constexpr int kPieces = (kFeatures + kParts * kRows) * kPiecesOfStep;
  static constexpr size_t kSharedBytes = size_t{kStages} * kPieces * sizeof(uint4);

  // Returns the first feature and the first row of this warp in the block.
  __device__ static int WarpFeature() { return Warp() % kFeatureWarps * kWarpFeatures; }
  __device__ static int WarpRow() { return Warp() / kFeatureWarps * kWarpRows; }
};

// Copies a thread block's weights and values to the stages. Places in memory are counted in pieces,
// so that 32 bits are enough.
template <typename Shape>
class Copies {
 public:
  template <typename Form>
  __device__ Copies(const Form& form, unsigned first_row, unsigned first_pair)
      : weights_(static_cast<const uint4*>(form.product.w)),
        values_(reinterpret_cast<const uint4*>(form.product.x_bf16.parts)),
        part_stride_(form.product.x_bf16.part_stride / kOfPiece),
        in_pieces_(static_cast<unsigned>(form.product.in_features / kOfPiece)) {
    TANDEM_UNROLL
    for (int i = 0; i < kWeightCopies; ++i) {
      const int row = i * kRowsOfCopy + MyRow();
      const int pair = row / kFeatures * kPairs + row % kPairs;
      weight_rows_[i] = PiecesBetween(
          form.product.w,
          WeightRow(form.product, form.Feature(first_pair + pair, row % kFeatures >= kPairs)));
    }
    TANDEM_UNROLL
    for (int i = 0; i < kValueCopies; ++i) {
      const int row = i * kRowsOfCopy + MyRow();
      value_rows_[i] =
          PiecesBetween(form.product.x_bf16.parts, ValueRow(form.product, first_row + row));
    }
  }

  // Begins to copy the weights of a step, or the values of a step. Past in_features, also in steps
  // past the last one, all are 0.
  __device__ void FetchWeights(unsigned step, int stage) const {
    const bool there = PieceOf(step) < in_pieces_;
    const unsigned piece = there ? PieceOf(step) : 0;
    TANDEM_UNROLL
    for (int i = 0; i < kWeightCopies; ++i) {
      CopyAsync16(To(stage, i * kRowsOfCopy), weights_ + (weight_rows_[i] + piece), there);
    }
  }
  __device__ void FetchValues(unsigned step, int stage) const {
    const bool there = PieceOf(step) < in_pieces_;
    const unsigned piece = there ? PieceOf(step) : 0;
    const uint4* from = values_;
    TANDEM_UNROLL
    for (int part = 0; part < Shape::kParts; ++part, from += part_stride_) {
      TANDEM_UNROLL
      for (int i = 0; i < kValueCopies; ++i) {
        CopyAsync16(To(stage, Shape::kFeatures + part * Shape::kRows + i * kRowsOfCopy),
                    from + (value_rows_[i] + piece), there);
      }
    }
  }

 private:
  static constexpr int kRowsOfCopy = Shape::kThreads / kPiecesOfStep;
  static constexpr int kWeightCopies = Shape::kFeatures / kRowsOfCopy;
  static constexpr int kValueCopies = Shape::kRows / kRowsOfCopy;
  static_assert(kRowsOfCopy % 2 == 0, "a multiple of it does not change PlaceOf");

  __device__ static int MyRow() { return static_cast<int>(threadIdx.x) / kPiecesOfStep; }
  __device__ static unsigned PieceOf(unsigned step) {
    return step * kPiecesOfStep + threadIdx.x % kPiecesOfStep;
  }
  __device__ static uint4* To(int stage, int row) {
    return SharedMemory<uint4>() + stage * Shape::kPieces +
           PlaceOf(MyRow(), static_cast<int>(threadIdx.x) % kPiecesOfStep) + row * kPiecesOfStep;
  }
  __device__ static uint32_t PiecesBetween(const void* begin, const uint16_t* end) {
    return static_cast<uint32_t>((end - static_cast<const uint16_t*>(begin)) / kOfPiece);
  }

  const uint4* const weights_;
  const uint4* const values_;
  const size_t part_stride_;
  const unsigned in_pieces_;
  uint32_t weight_rows_[kWeightCopies];
  uint32_t value_rows_[kValueCopies];
};

// What a lane reads of the stages.
template <typename Shape>
struct Reads {
  // Where the lane's words of a chunk begin. The other chunk's place differs in one bit.
  int weights = PlaceOf(Shape::WarpFeature() + Lane() / 4, Lane() % 4);
  int values = PlaceOf(Shape::WarpRow() + Lane() / 4, Lane() % 4);

  __device__ WeightWords Weights(int stage, int chunk, int fragment) const {
    const uint4* const from = SharedMemory<uint4>() + stage * Shape::kPieces +
                              (weights ^ (chunk * kPiecesOfChunk)) +
                              fragment * kFeatures * kPiecesOfStep;
    return {from[0], from[kFeatures / 2 * kPiecesOfStep]};
  }
  __device__ uint4 Values(int stage, int chunk, int tile, int part) const {
    return SharedMemory<uint4>()[stage * Shape::kPieces + (values ^ (chunk * kPiecesOfChunk)) +
                                 (Shape::kFeatures + part * Shape::kRows + tile * kColumns) *
                                     kPiecesOfStep];
  }
};

template <typename Shape>
struct WarpSums {
  float of[Shape::kFragments][Shape::kTiles][4];
};

// A lane's words of the chunk and the group of tiles that it multiplies, and of those that come
// next.
template <typename Shape>
struct Words {
  WeightWords weights[Shape::kFragments];              // this chunk's
  WeightWords next_weights[Shape::kFragments];         // the next chunk's
  uint4 values[2][Shape::kGroupTiles][Shape::kParts];  // even and odd groups of tiles

  __device__ void ReadWeights(const Reads<Shape>& reads, int stage, int chunk, int fragment) {
    next_weights[fragment] = reads.Weights(stage, chunk, fragment);
  }
  // The next chunk becomes this one.
  __device__ void TurnToNextChunk(unsigned hidden_zero) {
    TANDEM_UNROLL
    for (int fragment = 0; fragment < Shape::kFragments; ++fragment) {
      weights[fragment] = InNewRegisters(next_weights[fragment], hidden_zero);
    }
  }
  __device__ void ReadValues(const Reads<Shape>& reads, int stage, int chunk, int group) {
    TANDEM_UNROLL
    for (int tile = 0; tile < Shape::kGroupTiles; ++tile) {
      TANDEM_UNROLL
      for (int part = 0; part < Shape::kParts; ++part) {
        values[group % 2][tile][part] =
            reads.Values(stage, chunk, group * Shape::kGroupTiles + tile, part);
      }
    }
  }

  // Adds the products of a group of tiles to the sums.
  __device__ void Multiply(int group, WarpSums<Shape>& sums) const {
    TANDEM_UNROLL
    for (int half = 0; half < kHalves; ++half) {
      TANDEM_UNROLL
      for (int tile = 0; tile < Shape::kGroupTiles; ++tile) {
        TANDEM_UNROLL
        for (int fragment = 0; fragment < Shape::kFragments; ++fragment) {
          MultiplyHalf<Shape::kParts>(weights[fragment], values[group % 2][tile], half,
                                      sums.of[fragment][group * Shape::kGroupTiles + tile]);
        }
      }
    }
  }
};

// Adds the products of a chunk to the sums, and reads the words of the next chunk, which is in
// `next_stage`.
template <int kChunkOfStep, typename Shape>
__device__ inline void MultiplyChunk(const Reads<Shape>& reads, int stage, int next_stage,
                                     unsigned hidden_zero, Words<Shape>& words,
                                     WarpSums<Shape>& sums) {
  words.TurnToNextChunk(hidden_zero);
  constexpr int kNextChunk = 1 - kChunkOfStep;
  constexpr int kReadsOfGroup = Shape::kFragments / Shape::kGroups;
  TANDEM_UNROLL
  for (int group = 0; group < Shape::kGroups; ++group) {
    if (group + 1 < Shape::kGroups) {
      words.ReadValues(reads, stage, kChunkOfStep, group + 1);
    } else {
      words.ReadValues(reads, next_stage, kNextChunk, 0);
    }
    TANDEM_UNROLL
    for (int i = 0; i < kReadsOfGroup; ++i) {
      words.ReadWeights(reads, next_stage, kNextChunk, group * kReadsOfGroup + i);
    }
    words.Multiply(group, sums);
  }
}

// Adds the sums of a slice to the totals. The sums of the next slice begin with 0.
template <typename Shape>
__device__ inline void AddSlice(WarpSums<Shape>& sums, WarpSums<Shape>& totals) {
  TANDEM_UNROLL
  for (int fragment = 0; fragment < Shape::kFragments; ++fragment) {
    TANDEM_UNROLL
    for (int tile = 0; tile < Shape::kTiles; ++tile) {
      TANDEM_UNROLL
      for (int i = 0; i < 4; ++i) {
        float& total = totals.of[fragment][tile][i];
        total = __fadd_rn(total, sums.of[fragment][tile][i]);
        sums.of[fragment][tile][i] = 0;
      }
    }
  }
}

// The totals of a thread block in shared memory, in place of the ring: for each row, those of the
// pairs' first features and then those of the second ones. The gap keeps banks apart.
template <typename Shape>
struct SharedTotals {
  static constexpr int kPairsOfBlock = Shape::kFeatures / 2;
  static constexpr int kStride = Shape::kFeatures + 4;
  static_assert(size_t{Shape::kRows} * kStride * sizeof(float) <= Shape::kSharedBytes);

  __device__ static void Write(const WarpSums<Shape>& totals) {
    float* const to = SharedMemory<float>() + (Shape::WarpRow() + Lane() % 4 * 2) * kStride +
                      Shape::WarpFeature() / 2 + Lane() / 4;
    TANDEM_UNROLL
    for (int fragment = 0; fragment < Shape::kFragments; ++fragment) {
      TANDEM_UNROLL
      for (int tile = 0; tile < Shape::kTiles; ++tile) {
        TANDEM_UNROLL
        for (int i = 0; i < 4; ++i) {
          to[(tile * kColumns + i % 2) * kStride + i / 2 * kPairsOfBlock + fragment * kPairs] =
              totals.of[fragment][tile][i];
        }
      }
    }
  }
  __device__ static PairSums Read(int row, int pair) {
    const float* const from = SharedMemory<float>() + row * kStride + pair;
    return {from[0], from[kPairsOfBlock]};
  }
};

// Finishes the totals in shared memory. A thread has one pair of several rows. What it needs for
// some of them is loaded at once and without branches, because a store or a branch makes later
// loads wait.
template <typename Shape, typename Form>
__device__ inline void FinishTotals(const Form& form, unsigned first_row, unsigned first_pair) {
  using Totals = SharedTotals<Shape>;
  constexpr int kAtOnce = 8;
  constexpr int kRowsApart = Shape::kThreads / Totals::kPairsOfBlock;
  static_assert(Shape::kRows % (kAtOnce * kRowsApart) == 0);
  const auto last_row = static_cast<unsigned>(form.product.rows - 1);
  const auto last_pair = static_cast<unsigned>(form.NumPairs() - 1);
  const int of_block = static_cast<int>(threadIdx.x) % Totals::kPairsOfBlock;
  const unsigned pair = first_pair + of_block;
  TANDEM_NO_UNROLL
  for (int begin = static_cast<int>(threadIdx.x) / Totals::kPairsOfBlock; begin < Shape::kRows;
       begin += kAtOnce * kRowsApart) {
    typename Form::Known known[kAtOnce];
    TANDEM_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      known[i] = form.Load(min(first_row + begin + i * kRowsApart, last_row), min(pair, last_pair));
    }
    TANDEM_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      const int row = begin + i * kRowsApart;
      if (form.Has(first_row + row, pair)) {
        form.Finish(first_row + row, pair, known[i], Totals::Read(row, of_block));
      }
    }
  }
}

// Grid: (blocks of rows, blocks of features), so that blocks that share weights run at the same
// time. In the middle of a step, the warps wait for each other. Then the next step is there, and
// the one before has been read, so that its stage gets another step.
//   shared  [Shape::kStages, Shape::kPieces] of 16 bytes
template <typename Form, typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kMinBlocks)
    MatMulManyRowsBf16(Form form) {
  constexpr int kStages = Shape::kStages;
  const unsigned first_row = blockIdx.x * Shape::kRows;
  const unsigned first_pair = blockIdx.y * (Shape::kFeatures / 2);
  const Copies<Shape> copies(form, first_row, first_pair);
  TANDEM_UNROLL
  for (int stage = 0; stage + 1 < kStages; ++stage) {
    copies.FetchWeights(static_cast<unsigned>(stage), stage);
  }
  WaitForEarlierKernels();
  TANDEM_UNROLL
  for (int stage = 0; stage + 1 < kStages; ++stage) {
    copies.FetchValues(static_cast<unsigned>(stage), stage);
    EndCopyGroup();  // the first group has the weights of all these steps
  }
  const Reads<Shape> reads;
  const unsigned hidden_zero = HiddenZero(form.product);
  Words<Shape> words;
  WaitForCopyGroups<kStages - 2>();
  __syncthreads();
  TANDEM_UNROLL
  for (int fragment = 0; fragment < Shape::kFragments; ++fragment) {
    words.ReadWeights(reads, 0, 0, fragment);
  }
  words.ReadValues(reads, 0, 0, 0);

  const unsigned num_steps = NumSteps(form.product.in_features);
  WarpSums<Shape> totals = {};
  WarpSums<Shape> sums = {};
  unsigned step = 0;
  int stage = 0;
  TANDEM_NO_UNROLL
  for (unsigned slice = 0; slice < kSlices; ++slice) {
    const unsigned end = SliceBegin(slice + 1, num_steps);
    TANDEM_NO_UNROLL
    for (; step < end; ++step) {
      const int next_stage = stage + 1 == kStages ? 0 : stage + 1;
      const int last_stage = stage == 0 ? kStages - 1 : stage - 1;
      MultiplyChunk<0>(reads, stage, stage, hidden_zero, words, sums);
      WaitForCopyGroups<kStages - 3>();
      __syncthreads();
      copies.FetchWeights(step + kStages - 1, last_stage);
      copies.FetchValues(step + kStages - 1, last_stage);
      EndCopyGroup();
      MultiplyChunk<1>(reads, stage, next_stage, hidden_zero, words, sums);
      stage = next_stage;
    }
    AddSlice(sums, totals);  // a slice without steps adds 0, which changes nothing
  }
  WaitForCopyGroups<0>();
  __syncthreads();  // the totals take the place of the ring
  SharedTotals<Shape>::Write(totals);
  __syncthreads();
  FinishTotals<Shape>(form, first_row, first_pair);
}

template <typename Shape, typename Form>
absl::Status LaunchManyRows(const Form& form, CudaStream stream) {
  const LaunchShape shape = {
      .grid = dim3(
          static_cast<unsigned>((form.product.rows + Shape::kRows - 1) / Shape::kRows),
          static_cast<unsigned>((2 * form.NumPairs() + Shape::kFeatures - 1) / Shape::kFeatures)),
      .block = dim3(Shape::kThreads),
      .shared_bytes = Shape::kSharedBytes,
      .starts_early = true};
  auto* const kernel = MatMulManyRowsBf16<Form, Shape>;
  if (absl::Status status = AllowSharedMemory(kernel, shape.shared_bytes); !status.ok()) {
    return status;
  }
  return Launch("MatMul", kernel, shape, stream, form);
}

using Shape64x64 = BlockShape<2, 4, 2, 2, 1, 4, 3>;
using Shape128x64 = BlockShape<2, 8, 4, 1, 1, 3, 2>;
using Shape128x128 = BlockShape<2, 8, 4, 2, 1, 4, 1>;
using ShapeOfParts = BlockShape<2, 4, 2, 2, kMostBf16Parts, 3, 2>;

template <typename Form>
absl::Status LaunchTiles(Tile tile, const Form& form, CudaStream stream) {
  if (form.product.x_bf16.num_parts > 1) return LaunchManyRows<ShapeOfParts>(form, stream);
  switch (tile) {
    case Tile::k128x128:
      return LaunchManyRows<Shape128x128>(form, stream);
    case Tile::k128x64:
      return LaunchManyRows<Shape128x64>(form, stream);
    default:
      return LaunchManyRows<Shape64x64>(form, stream);
  }
}

}  // namespace

size_t SharedBytes(Tile tile) {
  switch (tile) {
    case Tile::k128x128:
      return Shape128x128::kSharedBytes;
    case Tile::k128x64:
      return Shape128x64::kSharedBytes;
    default:
      return Shape64x64::kSharedBytes;
  }
}

Tile ChooseTile(size_t features, size_t rows, const BlockLimits& limits) {
  // The time of a step, in clocks of a multiprocessor that has as many blocks as it can hold.
  struct Cost {
    Tile tile;
    size_t features, rows, clocks;
  };
  constexpr Cost kCosts[] = {
      {Tile::k128x128, 128, 128, 1200},
      {Tile::k128x64, 128, 64, 740},
      {Tile::k64x64, 64, 64, 500},
  };
  Tile best = Tile::k64x64;
  size_t best_clocks = SIZE_MAX;
  for (const Cost& cost : kCosts) {
    if (SharedBytes(cost.tile) > limits.max_shared_bytes) continue;
    const size_t blocks =
        ((features + cost.features - 1) / cost.features) * ((rows + cost.rows - 1) / cost.rows);
    const auto multiprocessors = static_cast<size_t>(limits.num_multiprocessors);
    const size_t clocks = (blocks + multiprocessors - 1) / multiprocessors * cost.clocks;
    if (clocks < best_clocks) {
      best = cost.tile;
      best_clocks = clocks;
    }
  }
  return best;
}

template <typename Form>
absl::Status MatMulManyRows(const Form& form, CudaStream stream) {
  const BlockLimits limits = DeviceBlockLimits();
  return LaunchTiles(ChooseTile(2 * form.NumPairs(), form.product.rows, limits), form, stream);
}
template absl::Status MatMulManyRows(const PlainForm& form, CudaStream stream);
template absl::Status MatMulManyRows(const GateForm& form, CudaStream stream);
template absl::Status MatMulManyRows(const RopeForm& form, CudaStream stream);

absl::Status MatMulInTiles(Tile tile, const MatMulArgs& args, CudaStream stream) {
  return LaunchTiles(tile, PlainForm{args}, stream);
}

}  // namespace tandem::bf16_product
