// Matrix product with BF16 weights on a GPU's matrix units, with one order of sums for any number
// of rows (ADR 0017, ADR 0027). The rows of a prompt have the bits that decoding them one by one
// would give.
//
// x comes in one BF16 part (rounded) or in three (exact). Every product is exact, and only sums are
// rounded. in_features is cut into steps of 64 and these into kSlices slices. Within a slice
//   sum = 0; for its steps ascending: for both chunks of 32: for both halves of a chunk:
//   for the parts, the smallest first: sum += part
// Each += adds one product of fragments. Slices are added in ascending order, beginning with 0. The
// order follows from in_features alone. Features are the rows of a fragment, and rows of x are its
// columns. Columns do not affect each other.
//
// Both factors must agree on the k that a fragment's column holds, and may choose it freely. Lane
// 4 g + t has k = 8 t … 8 t + 7 of a chunk, so that it reads 16 bytes of a weight row at once.
//
// Weights go to shared memory by copies that run ahead. A step is 128 contiguous bytes of a weight
// row, which is what device memory likes to deliver. On Hopper, the first steps are on their way
// before the kernel waits for the kernels before it. For up to 64 rows (decode, verify), each warp
// has one slice, and reading the weights is the limit. For more rows (prompts), a thread block
// computes 64 features of 64 rows, and x goes through shared memory too.
#include "kernels/matmul_bf16_cuda.h"

#include <algorithm>

#include "kernels/device/async_copy.cuh"
#include "kernels/device/device_code.cuh"
#include "kernels/device/launch.h"
#include "kernels/device/matrix_units.cuh"

namespace tandem {
namespace {

constexpr int kFeatures = 16;  // features in a fragment
constexpr int kColumns = 8;    // columns of a fragment, which are rows of x
constexpr int kOfTile = kFeatures * kColumns;
constexpr int kChunk = 32;         // number of k's of two fragments
constexpr int kStep = 2 * kChunk;  // number of k's that are copied at a time
constexpr int kOfPiece = 8;        // number of k's in 16 bytes
constexpr int kPiecesOfChunk = kChunk / kOfPiece;
constexpr int kPiecesOfStep = kStep / kOfPiece;
constexpr int kHalves = 2;
constexpr unsigned kSlices = 8;

// Returns the first step of a slice, and the number of steps for slice kSlices.
__device__ inline unsigned SliceBegin(unsigned slice, unsigned num_steps) {
  return slice * num_steps / kSlices;
}
__device__ inline unsigned NumSteps(size_t in_features) {
  return static_cast<unsigned>((in_features + kStep - 1) / kStep);
}

// Returns the place of a 16-byte piece of a row in shared memory. The rows of a step have 128 bytes
// each. Eight lanes read four pieces of two neighboring rows at a time, and should meet all banks.
__device__ inline int PlaceOf(int row, int piece) {
  return row * kPiecesOfStep + (piece ^ (row % 2 * kPiecesOfChunk));
}

// A lane's weights of a chunk, for features g and g + 8.
struct WeightWords {
  uint4 low, high;
};

// Computes one chunk. No other function sums products.
//   values  [kParts]  a lane's values of one row of x
template <int kParts>
__device__ inline void MultiplyChunk(const WeightWords& weights, const uint4 (&values)[kParts],
                                     float (&sums)[4]) {
  const uint32_t of_halves[kHalves][4] = {
      {weights.low.x, weights.high.x, weights.low.y, weights.high.y},
      {weights.low.z, weights.high.z, weights.low.w, weights.high.w}};
  TANDEM_UNROLL
  for (int half = 0; half < kHalves; ++half) {
    TANDEM_UNROLL
    for (int part = kParts - 1; part >= 0; --part) {
      const uint32_t columns[2] = {half == 0 ? values[part].x : values[part].z,
                                   half == 0 ? values[part].y : values[part].w};
      MultiplyFragments(of_halves[half], columns, sums);
    }
  }
}

__device__ inline void Write(const MatMulArgs& args, size_t row, size_t feature, float sum) {
  if (feature >= args.out_features || row >= args.rows) return;
  if (args.bias != nullptr) sum = __fadd_rn(sum, args.bias[feature]);
  float* const out = args.out + row * args.out_stride + feature;
  *out = args.add_to_out ? __fadd_rn(*out, sum) : sum;
}

// Features past the end are computed as copies of the last one, and not written.
__device__ inline const uint16_t* WeightRow(const MatMulArgs& args, size_t feature) {
  const size_t row = feature < args.out_features ? feature : args.out_features - 1;
  return static_cast<const uint16_t*>(args.w) + row * args.in_features;
}
// The same for rows of x.
__device__ inline const uint16_t* ValueRow(const MatMulArgs& args, size_t row) {
  return args.x_bf16.parts + (row < args.rows ? row : args.rows - 1) * args.x_bf16.stride;
}

// ---------------------------------------------------------------- few rows

// Copies of a warp's weights that run ahead.
//   kFragments  fragments of kFeatures features
//   kStages     number of steps that the ring holds
template <int kFragments, int kStages>
class WeightRing {
 public:
  static constexpr int kRowsOfStep = kFragments * kFeatures;
  static constexpr int kPieces = kRowsOfStep * kPiecesOfStep;  // 16-byte pieces of a step

  // `ring` has kStages * kPieces pieces of shared memory, for this warp alone.
  __device__ WeightRing(const MatMulArgs& args, size_t first_feature, unsigned begin, unsigned end,
                        uint4* ring)
      : ring_(ring), in_features_(args.in_features), begin_(begin), end_(end) {
    TANDEM_UNROLL
    for (int i = 0; i < kCopies; ++i) {
      from_[i] = WeightRow(args, first_feature + i * kRowsOfCopy + Lane() / kPiecesOfStep);
    }
    TANDEM_UNROLL
    for (int i = 0; i + 1 < kStages; ++i) Fetch(begin + i);
  }

  // Begins to copy a step. Steps are fetched in ascending order.
  __device__ void Fetch(unsigned step) {
    if (step < end_) {
      uint4* const to = ring_ + (step - begin_) % kStages * kPieces;
      const int piece = Lane() % kPiecesOfStep;
      const size_t k = size_t{step} * kStep + static_cast<size_t>(piece) * kOfPiece;
      const bool there = k < in_features_;  // past in_features, every weight is 0
      TANDEM_UNROLL
      for (int i = 0; i < kCopies; ++i) {
        const int row = i * kRowsOfCopy + Lane() / kPiecesOfStep;
        CopyAsync16(to + PlaceOf(row, piece), from_[i] + (there ? k : 0), there);
      }
    }
    EndCopyGroup();
  }

  // Waits for a step. All lanes of the warp then see it, until they fetch again after Done().
  __device__ void Wait() {
    WaitForCopyGroups<kStages - 2>();
    __syncwarp();
  }
  __device__ static void Done() { __syncwarp(); }

  // Returns the lane's weights of a chunk of a step.
  __device__ WeightWords Read(unsigned step, int fragment, int chunk) const {
    const uint4* const from = ring_ + (step - begin_) % kStages * kPieces;
    const int row = fragment * kFeatures + Lane() / 4;
    const int piece = chunk * kPiecesOfChunk + Lane() % 4;
    return {from[PlaceOf(row, piece)], from[PlaceOf(row + 8, piece)]};
  }

 private:
  static constexpr int kRowsOfCopy = kWarpSize / kPiecesOfStep;
  static constexpr int kCopies = kRowsOfStep / kRowsOfCopy;

  uint4* const ring_;
  const size_t in_features_;
  const unsigned begin_;
  const unsigned end_;
  const uint16_t* from_[kCopies];
};

// A lane's values of a step of kTiles * kColumns rows, for both chunks.
template <int kTiles, int kParts>
struct StepValues {
  uint4 words[2][kTiles][kParts];
};

// Loads the lane's values of one chunk. Past in_features, where every weight is 0, these are values
// from the row's beginning. If one of them is not finite, then the row's results are not either.
// Only then may they depend on the number of rows.
template <int kTiles, int kParts>
__device__ inline void LoadValues(const MatMulArgs& args, const uint16_t* const (&rows)[kTiles],
                                  unsigned step, int chunk, StepValues<kTiles, kParts>* values) {
  const unsigned k = step * kStep + static_cast<unsigned>(chunk * kChunk + Lane() % 4 * kOfPiece);
  const unsigned from = k < args.in_features ? k : 0;
  TANDEM_UNROLL
  for (int tile = 0; tile < kTiles; ++tile) {
    TANDEM_UNROLL
    for (int part = 0; part < kParts; ++part) {
      values->words[chunk][tile][part] = *reinterpret_cast<const uint4*>(
          rows[tile] + static_cast<size_t>(part) * args.x_bf16.part_stride + from);
    }
  }
}

// Adds the slices' sums and writes the results.
//   sums    [kFragments, kTiles]  of the warp's slice
//   shared  [kSlices, kFragments, kTiles, kColumns, kFeatures]  f32
template <int kFragments, int kTiles>
__device__ inline void AddSlicesAndWrite(const MatMulArgs& args, size_t first_row,
                                         size_t first_feature,
                                         const float (&sums)[kFragments][kTiles][4],
                                         float* shared) {
  constexpr int kOfSlice = kFragments * kTiles * kOfTile;
  const int g = Lane() / 4;
  const int t = Lane() % 4;
  TANDEM_UNROLL
  for (int fragment = 0; fragment < kFragments; ++fragment) {
    TANDEM_UNROLL
    for (int tile = 0; tile < kTiles; ++tile) {
      float* const to = shared + Warp() * kOfSlice + (fragment * kTiles + tile) * kOfTile;
      TANDEM_UNROLL
      for (int i = 0; i < 4; ++i) {
        to[(t * 2 + i % 2) * kFeatures + g + i / 2 * 8] = sums[fragment][tile][i];
      }
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kOfSlice; i += kSlices * kWarpSize) {
    float sum = 0;
    TANDEM_UNROLL
    for (int slice = 0; slice < static_cast<int>(kSlices); ++slice) {
      sum = __fadd_rn(sum, shared[slice * kOfSlice + i]);
    }
    const int tile = i / kOfTile % kTiles;
    const int fragment = i / kOfTile / kTiles;
    Write(args, first_row + static_cast<size_t>(tile * kColumns + i % kOfTile / kFeatures),
          first_feature + static_cast<size_t>(fragment * kFeatures + i % kFeatures), sum);
  }
}

// Thread blocks that a multiprocessor should hold. Registers are limited accordingly.
template <int kFragments, int kTiles, int kParts>
constexpr int MinBlocks() {
  if (kFragments == 1) return kTiles * kParts <= 2 ? 3 : 2;
  return kTiles * kParts <= 4 ? 2 : 1;
}

// Grid: (blocks of kFragments * kFeatures features, blocks of kTiles * kColumns rows). Each warp
// has one slice.
//   shared  [kSlices, kStages, WeightRing::kPieces] of 16 bytes, then the slices' sums in its place
template <int kFragments, int kTiles, int kParts, int kStages>
__global__ void __launch_bounds__(kSlices* kWarpSize, (MinBlocks<kFragments, kTiles, kParts>()))
    MatMulFewRowsBf16(MatMulArgs args) {
  using Ring = WeightRing<kFragments, kStages>;
  const size_t first_feature = size_t{blockIdx.x} * (kFragments * kFeatures);
  const size_t first_row = size_t{blockIdx.y} * (kTiles * kColumns);
  const unsigned num_steps = NumSteps(args.in_features);
  const auto slice = static_cast<unsigned>(Warp());
  const unsigned begin = SliceBegin(slice, num_steps);
  const unsigned end = SliceBegin(slice + 1, num_steps);
  Ring ring(args, first_feature, begin, end,
            SharedMemory<uint4>() + slice * (kStages * Ring::kPieces));
  WaitForEarlierKernels();

  const uint16_t* rows[kTiles];
  TANDEM_UNROLL
  for (int tile = 0; tile < kTiles; ++tile) {
    rows[tile] = ValueRow(args, first_row + static_cast<size_t>(tile * kColumns + Lane() / 4));
  }
  StepValues<kTiles, kParts> values;
  if (begin < end) {
    LoadValues(args, rows, begin, 0, &values);
    LoadValues(args, rows, begin, 1, &values);
  }
  float sums[kFragments][kTiles][4] = {};
  TANDEM_NO_UNROLL
  for (unsigned step = begin; step < end; ++step) {
    ring.Wait();
    TANDEM_UNROLL
    for (int chunk = 0; chunk < 2; ++chunk) {
      WeightWords weights[kFragments];
      TANDEM_UNROLL
      for (int fragment = 0; fragment < kFragments; ++fragment) {
        weights[fragment] = ring.Read(step, fragment, chunk);
      }
      TANDEM_UNROLL
      for (int tile = 0; tile < kTiles; ++tile) {
        TANDEM_UNROLL
        for (int fragment = 0; fragment < kFragments; ++fragment) {
          MultiplyChunk<kParts>(weights[fragment], values.words[chunk][tile], sums[fragment][tile]);
        }
      }
      if (step + 1 < end) LoadValues(args, rows, step + 1, chunk, &values);
    }
    Ring::Done();
    ring.Fetch(step + kStages - 1);
  }
  WaitForCopyGroups<0>();
  __syncthreads();  // the sums take the place of the ring
  AddSlicesAndWrite(args, first_row, first_feature, sums, SharedMemory<float>());
}

template <int kFragments, int kTiles, int kParts, int kStages>
absl::Status LaunchFewRows(const MatMulArgs& args, CudaStream stream) {
  constexpr size_t kFeaturesOfBlock = size_t{kFragments} * kFeatures;
  constexpr size_t kRowsOfBlock = size_t{kTiles} * kColumns;
  constexpr size_t kRingBytes =
      size_t{kSlices} * kStages * WeightRing<kFragments, kStages>::kPieces * sizeof(uint4);
  constexpr size_t kSumBytes = size_t{kSlices} * kFragments * kTiles * kOfTile * sizeof(float);
  const LaunchShape shape = {
      .grid =
          dim3(static_cast<unsigned>((args.out_features + kFeaturesOfBlock - 1) / kFeaturesOfBlock),
               static_cast<unsigned>((args.rows + kRowsOfBlock - 1) / kRowsOfBlock)),
      .block = dim3(kSlices * kWarpSize),
      .shared_bytes = std::max(kRingBytes, kSumBytes),
      .starts_early = true};
  auto* const kernel = MatMulFewRowsBf16<kFragments, kTiles, kParts, kStages>;
  if (absl::Status status = AllowSharedMemory(kernel, shape.shared_bytes); !status.ok()) {
    return status;
  }
  return Launch("MatMul", kernel, shape, stream, args);
}

// ---------------------------------------------------------------- prompts

constexpr int kBlockFeatures = 64;  // features in a thread block; a warp has half of them
constexpr int kBlockRows = 64;      // rows in a thread block; a warp has half of them
constexpr int kBlockWarps = 4;
constexpr int kBlockThreads = kBlockWarps * kWarpSize;
constexpr int kWarpFragments = kBlockFeatures / 2 / kFeatures;
constexpr int kWarpTiles = kBlockRows / 2 / kColumns;

using WarpSums = float[kWarpFragments][kWarpTiles][4];

// Copies of a thread block's weights and values that run ahead. A stage holds the block's weights
// of a step, and then each part of its values.
template <int kParts, int kStages>
class BlockRing {
 public:
  static constexpr int kPieces = (kBlockFeatures + kParts * kBlockRows) * kPiecesOfStep;

  __device__ BlockRing(const MatMulArgs& args, size_t first_row, size_t first_feature)
      : args_(args), first_row_(first_row), first_feature_(first_feature) {}

  // Begins to copy the weights of a step, or the values of a step.
  __device__ void FetchWeights(unsigned step) const {
    TANDEM_UNROLL
    for (int i = 0; i < kBlockFeatures / kRowsOfCopy; ++i) {
      const int row = i * kRowsOfCopy + MyRow();
      Copy(Stage(step), row, step, WeightRow(args_, first_feature_ + static_cast<size_t>(row)));
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

  const MatMulArgs& args_;
  const size_t first_row_;
  const size_t first_feature_;
};

// Adds the products of a step to a warp's sums.
//   feature, row  of the warp's first in the thread block
template <int kParts, int kStages>
__device__ inline void MultiplyStep(const BlockRing<kParts, kStages>& ring, unsigned step,
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
      for (int fragment = 0; fragment < kWarpFragments; ++fragment) {
        MultiplyChunk<kParts>(weights[fragment], values, sums[fragment][tile]);
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

// Writes a lane's totals. `row` and `feature` are those of the lane's first total.
__device__ inline void WriteTotals(const MatMulArgs& args, size_t row, size_t feature,
                                   const WarpSums& totals) {
  TANDEM_UNROLL
  for (int fragment = 0; fragment < kWarpFragments; ++fragment) {
    TANDEM_UNROLL
    for (int tile = 0; tile < kWarpTiles; ++tile) {
      TANDEM_UNROLL
      for (int i = 0; i < 4; ++i) {
        Write(args, row + tile * kColumns + i % 2, feature + fragment * kFeatures + i / 2 * 8,
              totals[fragment][tile][i]);
      }
    }
  }
}

// Grid: (blocks of rows, blocks of features), so that blocks that share weights run at the same
// time.
//   shared  [kStages, BlockRing::kPieces] of 16 bytes
template <int kParts, int kStages>
__global__ void __launch_bounds__(kBlockThreads, 2) MatMulManyRowsBf16(MatMulArgs args) {
  const size_t first_row = size_t{blockIdx.x} * kBlockRows;
  const size_t first_feature = size_t{blockIdx.y} * kBlockFeatures;
  const int feature = Warp() % 2 * (kWarpFragments * kFeatures);
  const int row = Warp() / 2 * (kWarpTiles * kColumns);
  const BlockRing<kParts, kStages> ring(args, first_row, first_feature);
  const unsigned num_steps = NumSteps(args.in_features);
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
  WriteTotals(args, first_row + static_cast<size_t>(row + Lane() % 4 * 2),
              first_feature + static_cast<size_t>(feature + Lane() / 4), totals);
}

template <int kParts, int kStages>
absl::Status LaunchManyRows(const MatMulArgs& args, CudaStream stream) {
  const LaunchShape shape = {
      .grid =
          dim3(static_cast<unsigned>((args.rows + kBlockRows - 1) / kBlockRows),
               static_cast<unsigned>((args.out_features + kBlockFeatures - 1) / kBlockFeatures)),
      .block = dim3(kBlockThreads),
      .shared_bytes = size_t{kStages} * BlockRing<kParts, kStages>::kPieces * sizeof(uint4),
      .starts_early = true};
  auto* const kernel = MatMulManyRowsBf16<kParts, kStages>;
  if (absl::Status status = AllowSharedMemory(kernel, shape.shared_bytes); !status.ok()) {
    return status;
  }
  return Launch("MatMul", kernel, shape, stream, args);
}

}  // namespace

absl::Status MatMulBf16(const MatMulArgs& args, CudaStream stream) {
  // A block of 32 features reads x half as often as one of 16, but leaves multiprocessors without
  // work if there are few features. The choice has no effect on bits.
  const bool is_rounded = args.x_bf16.num_parts == 1;
  if (args.rows <= kColumns) {
    return is_rounded ? LaunchFewRows<1, 1, 1, 4>(args, stream)
                      : LaunchFewRows<1, 1, 3, 4>(args, stream);
  }
  if (args.rows <= 2 * kColumns) {
    return is_rounded ? LaunchFewRows<1, 2, 1, 4>(args, stream)
                      : LaunchFewRows<1, 2, 3, 4>(args, stream);
  }
  if (args.rows <= 4 * kColumns || (args.rows <= 8 * kColumns && !is_rounded)) {
    return is_rounded ? LaunchFewRows<2, 4, 1, 3>(args, stream)
                      : LaunchFewRows<2, 4, 3, 3>(args, stream);
  }
  if (args.rows <= 8 * kColumns) return LaunchFewRows<2, 8, 1, 3>(args, stream);
  return is_rounded ? LaunchManyRows<1, 4>(args, stream) : LaunchManyRows<3, 3>(args, stream);
}

}  // namespace tandem
