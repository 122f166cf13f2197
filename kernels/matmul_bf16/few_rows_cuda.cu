// Products with BF16 weights for up to 64 rows (decode, verify), where reading the weights is the
// limit. Each warp of a thread block has one slice of in_features, and its weights go to shared
// memory by copies that run ahead. A step is 128 contiguous bytes of a weight row, which is what
// device memory likes to deliver. On Hopper, the first steps are on their way before the kernel
// waits for the kernels before it.
#include <algorithm>

#include "kernels/device/async_copy.cuh"
#include "kernels/device/device_code.cuh"
#include "kernels/device/launch.h"
#include "kernels/matmul_bf16/forms.cuh"
#include "kernels/matmul_bf16/fragments.cuh"
#include "kernels/matmul_bf16/rows.h"

namespace tandem::bf16_product {
namespace {

// The fragments of a thread block.
//   kFragments  how many there are
//   kPairsOf    pairs of a fragment that are computed: all 8, or the first 4. Then the others are
//               copies. Bits do not depend on it
template <int kFragments, int kPairsOf>
struct Features {
  static constexpr int kPairsOfBlock = kFragments * kPairsOf;
  static constexpr int kRowsOfFragment = 2 * kPairsOf;
  static constexpr int kRowsOfStep = kFragments * kRowsOfFragment;
};

// Copies of a warp's weights that run ahead.
//   kStages  number of steps that the ring holds
template <typename OfBlock, int kPairsOf, int kStages>
class WeightRing {
 public:
  static constexpr int kRowsOfStep = OfBlock::kRowsOfStep;
  static constexpr int kPieces = kRowsOfStep * kPiecesOfStep;  // 16-byte pieces of a step

  // `ring` has kStages * kPieces pieces of shared memory, for this warp alone.
  template <typename Form>
  __device__ WeightRing(const Form& form, size_t first_pair, unsigned begin, unsigned end,
                        uint4* ring)
      : ring_(ring), in_features_(form.product.in_features), begin_(begin), end_(end) {
    TANDEM_UNROLL
    for (int i = 0; i < kCopies; ++i) {
      const int row = i * kRowsOfCopy + Lane() / kPiecesOfStep;
      const int of_fragment = row % OfBlock::kRowsOfFragment;
      const int pair = row / OfBlock::kRowsOfFragment * kPairsOf + of_fragment % kPairsOf;
      from_[i] = WeightRow(form.product, form.Feature(first_pair + static_cast<size_t>(pair),
                                                      of_fragment >= kPairsOf));
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
    const int row = fragment * OfBlock::kRowsOfFragment + Lane() / 4 % kPairsOf;
    const int piece = chunk * kPiecesOfChunk + Lane() % 4;
    return {from[PlaceOf(row, piece)], from[PlaceOf(row + kPairsOf, piece)]};
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

// The pairs that a thread finishes, for each row of x of a thread block. If there are no more than
// threads, then a thread knows its pair from the start, and loads what it needs while the weights
// are on their way.
template <typename Form, int kFragments, int kPairsOf, int kTiles>
class Finisher {
 public:
  __device__ Finisher(const Form& form, size_t first_row, size_t first_pair)
      : form_(form), first_row_(first_row), first_pair_(first_pair) {
    if constexpr (kIsAhead) {
      const Place place = PlaceOfPair(static_cast<int>(threadIdx.x));
      has_ = place.index < kNumPairs && form_.Has(place.row, place.pair);
      if (has_) known_ = form_.Load(place.row, place.pair);
    }
  }

  // Adds the slices' sums and finishes them.
  //   sums    [kFragments, kTiles]  of the warp's slice
  //   shared  [kSlices, kFragments, kTiles, kColumns, kFeatures]  f32
  __device__ void Finish(const float (&sums)[kFragments][kTiles][4], float* shared) const {
    const int g = Lane() / 4;
    const int t = Lane() % 4;
    TANDEM_UNROLL
    for (int fragment = 0; fragment < kFragments; ++fragment) {
      TANDEM_UNROLL
      for (int tile = 0; tile < kTiles; ++tile) {
        float* const to = shared + Warp() * kOfSlice + (fragment * kTiles + tile) * kOfTile;
        TANDEM_UNROLL
        for (int i = 0; i < 4; ++i) {
          to[(t * 2 + i % 2) * kFeatures + g + i / 2 * kPairs] = sums[fragment][tile][i];
        }
      }
    }
    __syncthreads();
    if constexpr (kIsAhead) {
      if (!has_) return;
      const Place place = PlaceOfPair(static_cast<int>(threadIdx.x));
      form_.Finish(place.row, place.pair, known_, Total(shared + place.of_sums));
    } else {
      for (int i = static_cast<int>(threadIdx.x); i < kNumPairs; i += kSlices * kWarpSize) {
        const Place place = PlaceOfPair(i);
        LoadAndFinish(form_, place.row, place.pair, Total(shared + place.of_sums));
      }
    }
  }

 private:
  static constexpr int kOfTile = kFeatures * kColumns;
  static constexpr int kOfSlice = kFragments * kTiles * kOfTile;
  static constexpr int kNumPairs = kFragments * kTiles * kColumns * kPairsOf;
  static constexpr bool kIsAhead = kNumPairs <= static_cast<int>(kSlices) * kWarpSize;

  struct Place {
    int index;
    size_t row, pair;
    int of_sums;  // where the sums of a slice are
  };
  __device__ Place PlaceOfPair(int i) const {
    const int pair = i % kPairsOf;
    const int column = i / kPairsOf % kColumns;
    const int tile = i / kPairsOf / kColumns % kTiles;
    const int fragment = i / kPairsOf / kColumns / kTiles;
    return {i, first_row_ + static_cast<size_t>(tile * kColumns + column),
            first_pair_ + static_cast<size_t>(fragment * kPairsOf + pair),
            (fragment * kTiles + tile) * kOfTile + column * kFeatures + pair};
  }
  __device__ static PairSums Total(const float* from) {
    PairSums total = {0, 0};
    TANDEM_UNROLL
    for (int slice = 0; slice < static_cast<int>(kSlices); ++slice) {
      total.first = __fadd_rn(total.first, from[slice * kOfSlice]);
      total.second = __fadd_rn(total.second, from[slice * kOfSlice + kPairs]);
    }
    return total;
  }

  const Form& form_;
  const size_t first_row_;
  const size_t first_pair_;
  bool has_ = false;
  typename Form::Known known_ = {};
};

// Thread blocks that a multiprocessor should hold. Registers are limited accordingly.
template <int kFragments, int kTiles, int kParts>
constexpr int MinBlocks() {
  if (kFragments == 1) return kTiles * kParts <= 2 ? 3 : 2;
  return kTiles * kParts <= 4 ? 2 : 1;
}

// Grid: (blocks of pairs, blocks of kTiles * kColumns rows). Each warp has one slice.
//   shared  [kSlices, kStages, WeightRing::kPieces] of 16 bytes, then the slices' sums in its place
template <typename Form, int kFragments, int kPairsOf, int kTiles, int kParts, int kStages>
__global__ void __launch_bounds__(kSlices* kWarpSize, (MinBlocks<kFragments, kTiles, kParts>()))
    MatMulFewRowsBf16(Form form) {
  using OfBlock = Features<kFragments, kPairsOf>;
  using Ring = WeightRing<OfBlock, kPairsOf, kStages>;
  const MatMulArgs& args = form.product;
  const size_t first_pair = size_t{blockIdx.x} * OfBlock::kPairsOfBlock;
  const size_t first_row = size_t{blockIdx.y} * (kTiles * kColumns);
  const unsigned num_steps = NumSteps(args.in_features);
  const auto slice = static_cast<unsigned>(Warp());
  const unsigned begin = SliceBegin(slice, num_steps);
  const unsigned end = SliceBegin(slice + 1, num_steps);
  Ring ring(form, first_pair, begin, end,
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
  const Finisher<Form, kFragments, kPairsOf, kTiles> finisher(form, first_row, first_pair);
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
      for (int half = 0; half < kHalves; ++half) {
        TANDEM_UNROLL
        for (int tile = 0; tile < kTiles; ++tile) {
          TANDEM_UNROLL
          for (int fragment = 0; fragment < kFragments; ++fragment) {
            MultiplyHalf<kParts>(weights[fragment], values.words[chunk][tile], half,
                                 sums[fragment][tile]);
          }
        }
      }
      if (step + 1 < end) LoadValues(args, rows, step + 1, chunk, &values);
    }
    Ring::Done();
    ring.Fetch(step + kStages - 1);
  }
  WaitForCopyGroups<0>();
  __syncthreads();  // the sums take the place of the ring
  finisher.Finish(sums, SharedMemory<float>());
}

template <int kFragments, int kPairsOf, int kTiles, int kParts, int kStages, typename Form>
absl::Status LaunchFewRows(const Form& form, CudaStream stream) {
  using OfBlock = Features<kFragments, kPairsOf>;
  constexpr size_t kRowsOfBlock = size_t{kTiles} * kColumns;
  constexpr size_t kRingBytes =
      size_t{kSlices} * kStages * WeightRing<OfBlock, kPairsOf, kStages>::kPieces * sizeof(uint4);
  constexpr size_t kSumBytes =
      size_t{kSlices} * kFragments * kTiles * kFeatures * kColumns * sizeof(float);
  const LaunchShape shape = {
      .grid = dim3(static_cast<unsigned>((form.NumPairs() + OfBlock::kPairsOfBlock - 1) /
                                         OfBlock::kPairsOfBlock),
                   static_cast<unsigned>((form.product.rows + kRowsOfBlock - 1) / kRowsOfBlock)),
      .block = dim3(kSlices * kWarpSize),
      .shared_bytes = std::max(kRingBytes, kSumBytes),
      .starts_early = true};
  auto* const kernel = MatMulFewRowsBf16<Form, kFragments, kPairsOf, kTiles, kParts, kStages>;
  if (absl::Status status = AllowSharedMemory(kernel, shape.shared_bytes); !status.ok()) {
    return status;
  }
  return Launch("MatMul", kernel, shape, stream, form);
}

// Returns whether blocks of half fragments share the work more evenly among multiprocessors: with
// whole ones, each would get few blocks, and some would get one more than others. Each block reads
// x, so that this pays for few rows alone.
template <typename Form>
bool WantsHalves(const Form& form) {
  constexpr size_t kFewBlocks = 400;  // about three for each multiprocessor of an H100
  return form.NumPairs() / kPairs < kFewBlocks;
}

// A block of two fragments reads x half as often as a block of one, but leaves multiprocessors
// without work if there are few features. The choice has no effect on bits.
template <int kParts, typename Form>
absl::Status FewRows(const Form& form, CudaStream stream) {
  const size_t rows = form.product.rows;
  if (rows <= kColumns) {
    return WantsHalves(form) ? LaunchFewRows<1, 4, 1, kParts, 8>(form, stream)
                             : LaunchFewRows<1, 8, 1, kParts, 4>(form, stream);
  }
  if (rows <= 2 * kColumns) return LaunchFewRows<1, 8, 2, kParts, 4>(form, stream);
  if (rows <= 4 * kColumns || kParts > 1) return LaunchFewRows<2, 8, 4, kParts, 3>(form, stream);
  return LaunchFewRows<2, 8, 8, 1, 3>(form, stream);
}

}  // namespace

template <typename Form>
absl::Status MatMulFewRows(const Form& form, CudaStream stream) {
  return form.product.x_bf16.num_parts == 1 ? FewRows<1>(form, stream)
                                            : FewRows<kMostBf16Parts>(form, stream);
}
template absl::Status MatMulFewRows(const PlainForm& form, CudaStream stream);
template absl::Status MatMulFewRows(const GateForm& form, CudaStream stream);
template absl::Status MatMulFewRows(const RopeForm& form, CudaStream stream);

}  // namespace tandem::bf16_product
