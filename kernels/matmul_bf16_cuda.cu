// Matrix product with BF16 weights on a GPU's matrix units, with one order of sums for any number
// of rows (ADR 0017). The rows of a prompt have the bits that decoding them one by one would give.
//
// x is split exactly into three BF16 parts. Every product is then exact, and only sums are rounded.
// in_features is cut into chunks of 32 and these into slices. Within a slice
//   sum = 0; for its chunks ascending: for both halves of a chunk: += low, += middle, += high part
// Each += adds one product of fragments. Slices are added in ascending order, beginning with 0. The
// order follows from the shape of w alone. Features are the rows of a fragment, and rows of x are
// its columns. Columns do not affect each other.
//
// Both factors must agree on the k that a fragment's column holds, and may choose it freely. Lane
// 4 g + t has k = 8 t … 8 t + 7 of a chunk, so that it reads 16 bytes of a weight row at once.
//
// For up to 32 rows (decode, verify), a warp computes 16 features of all rows over one slice.
// Weights go from memory to registers, and reading them once is the limit. For more rows (prompts),
// a thread block computes 64 features of 64 rows and keeps the parts of x in shared memory.
#include "kernels/matmul_bf16_cuda.h"

#include <algorithm>

#include "kernels/device/device_code.cuh"
#include "kernels/device/launch.h"
#include "kernels/device/matrix_units.cuh"

namespace tandem {
namespace {

constexpr int kFeatures = 16;  // features in a fragment
constexpr int kColumns = 8;    // columns of a fragment, which are rows of x
constexpr int kChunk = 32;     // number of k's that a warp computes at a time: two fragments
constexpr int kOfLane = 8;     // number of k's in a chunk that one lane holds
constexpr int kHalves = 2;

// Returns the first chunk of a slice, and the number of chunks for slice num_slices.
__device__ inline unsigned SliceBegin(unsigned slice, unsigned num_slices, unsigned num_chunks) {
  return static_cast<unsigned>(uint64_t{slice} * num_chunks / num_slices);
}

// A lane's weights of a chunk, for features g and g + 8.
struct WeightWords {
  uint4 low, high;
};

// Past in_features, every weight is 0.
__device__ inline WeightWords LoadWeights(const uint16_t* low, const uint16_t* high, size_t k,
                                          size_t in_features) {
  if (k >= in_features) return {make_uint4(0, 0, 0, 0), make_uint4(0, 0, 0, 0)};
  return {__ldcs(reinterpret_cast<const uint4*>(low + k)),
          __ldcs(reinterpret_cast<const uint4*>(high + k))};
}

// A lane's values of a chunk of one row, in parts. words[part][i] has k's 2 i and 2 i + 1.
struct ValueWords {
  uint32_t words[kParts][kOfLane / 2];
};

__device__ inline void SplitValues(const float* from, bool there, ValueWords* to) {
  float4 low = make_float4(0, 0, 0, 0);
  float4 high = low;
  if (there) {
    low = __ldg(reinterpret_cast<const float4*>(from));
    high = __ldg(reinterpret_cast<const float4*>(from) + 1);
  }
  const float values[kOfLane] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  TANDEM_UNROLL
  for (int i = 0; i < kOfLane / 2; ++i) {
    uint32_t parts[kParts];
    SplitPair(values[2 * i], values[2 * i + 1], parts);
    TANDEM_UNROLL
    for (int part = 0; part < kParts; ++part) to->words[part][i] = parts[part];
  }
}

// Computes one chunk. No other function sums products.
__device__ inline void MultiplyChunk(const WeightWords& weights, const ValueWords& values,
                                     float (&sums)[4]) {
  const uint32_t of_halves[kHalves][4] = {
      {weights.low.x, weights.high.x, weights.low.y, weights.high.y},
      {weights.low.z, weights.high.z, weights.low.w, weights.high.w}};
  TANDEM_UNROLL
  for (int half = 0; half < kHalves; ++half) {
    TANDEM_UNROLL
    for (int part = kParts - 1; part >= 0; --part) {
      const uint32_t columns[2] = {values.words[part][2 * half], values.words[part][2 * half + 1]};
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

// ---------------------------------------------------------------- few rows

constexpr int kWarps = 8;
constexpr int kAhead = 4;  // number of chunks whose weights are being loaded at once

// Grid: blocks of features. The warps of a group share features, and each warp has a slice.
template <int kTiles>  // number of tiles of kColumns rows
__global__ void __launch_bounds__(kWarps* kWarpSize)
    MatMulFewRowsBf16(MatMulArgs args, int num_slices) {
  const int groups = kWarps / num_slices;
  const int slice = Warp() % num_slices;
  const int group = Warp() / num_slices;
  const size_t first_feature = (size_t{blockIdx.x} * groups + group) * kFeatures;
  const int g = Lane() / 4;
  const size_t first_k = static_cast<size_t>(Lane() % 4) * kOfLane;

  const uint16_t* const low = WeightRow(args, first_feature + g);
  const uint16_t* const high = WeightRow(args, first_feature + g + 8);
  const float* rows[kTiles];
  bool is_row[kTiles];
  TANDEM_UNROLL
  for (int tile = 0; tile < kTiles; ++tile) {
    const size_t row = static_cast<size_t>(tile * kColumns + g);
    is_row[tile] = row < args.rows;
    rows[tile] = args.x + (is_row[tile] ? row * args.x_stride : 0);
  }

  float sums[kTiles][4] = {};
  const auto num_chunks = static_cast<unsigned>((args.in_features + kChunk - 1) / kChunk);
  const unsigned end = SliceBegin(slice + 1, num_slices, num_chunks);
  for (unsigned chunk = SliceBegin(slice, num_slices, num_chunks); chunk < end; chunk += kAhead) {
    WeightWords weights[kAhead];
    TANDEM_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      // Chunks past the slice's end are loaded as 0 and not multiplied.
      const size_t k = chunk + i < end ? size_t{chunk + i} * kChunk + first_k : args.in_features;
      weights[i] = LoadWeights(low, high, k, args.in_features);
    }
    TANDEM_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      if (chunk + i >= end) break;
      const size_t k = size_t{chunk + i} * kChunk + first_k;
      TANDEM_UNROLL
      for (int tile = 0; tile < kTiles; ++tile) {
        ValueWords values;
        SplitValues(rows[tile] + k, is_row[tile] && k < args.in_features, &values);
        MultiplyChunk(weights[i], values, sums[tile]);
      }
    }
  }

  constexpr int kOfTile = kFeatures * kColumns;
  float* const shared = SharedMemory<float>();  // [kWarps, kTiles, kFeatures, kColumns]
  TANDEM_UNROLL
  for (int tile = 0; tile < kTiles; ++tile) {
    float* const of_tile = shared + (Warp() * kTiles + tile) * kOfTile;
    TANDEM_UNROLL
    for (int i = 0; i < 4; ++i) {
      of_tile[(g + i / 2 * 8) * kColumns + Lane() % 4 * 2 + i % 2] = sums[tile][i];
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < groups * kTiles * kOfTile;
       i += kWarps * kWarpSize) {
    const int of_group = i / (kTiles * kOfTile);
    const int in_group = i % (kTiles * kOfTile);
    float sum = 0;
    for (int warp = of_group * num_slices; warp < (of_group + 1) * num_slices; ++warp) {
      sum = __fadd_rn(sum, shared[warp * kTiles * kOfTile + in_group]);
    }
    const size_t feature =
        (size_t{blockIdx.x} * groups + of_group) * kFeatures + in_group % kOfTile / kColumns;
    Write(args, static_cast<size_t>(in_group / kOfTile * kColumns + in_group % kColumns), feature,
          sum);
  }
}

template <int kTiles>
absl::Status LaunchFewRows(const MatMulArgs& args, CudaStream stream) {
  const int slices = NumSlices(args.out_features);
  const size_t features = size_t{kFeatures} * (kWarps / slices);
  LaunchShape shape;
  shape.grid = dim3(static_cast<unsigned>((args.out_features + features - 1) / features));
  shape.block = dim3(kWarps * kWarpSize);
  shape.shared_bytes = size_t{kWarps} * kTiles * kFeatures * kColumns * sizeof(float);
  return Launch("MatMul", MatMulFewRowsBf16<kTiles>, shape, stream, args, slices);
}

// ---------------------------------------------------------------- prompts

constexpr int kTileFeatures = 64;  // features in a thread block; a warp has half of them
constexpr int kTileRows = 64;      // rows in a thread block; a warp has half of them
constexpr int kTileWarps = 4;
constexpr int kFragments = 2;              // fragments of features in a warp
constexpr int kTiles = 4;                  // tiles of rows in a warp
constexpr int kGroups = kChunk / kOfLane;  // groups in a row's chunk
// 16-byte pieces of a row's chunk in shared memory: [kParts, kGroups].
constexpr int kPieces = kParts * kGroups;

using WarpSums = float[kFragments][kTiles][4];

// Multiplies a warp's weights of a chunk by its rows. `pieces` is the lane's first piece of the
// first tile in shared memory.
__device__ inline void MultiplyTiles(const WeightWords (&weights)[kFragments], const uint4* pieces,
                                     WarpSums& sums) {
  TANDEM_UNROLL
  for (int tile = 0; tile < kTiles; ++tile) {
    const uint4* const from = pieces + tile * kColumns * kPieces;
    ValueWords values;
    TANDEM_UNROLL
    for (int part = 0; part < kParts; ++part) {
      const uint4 words = from[part * kGroups];
      values.words[part][0] = words.x, values.words[part][1] = words.y;
      values.words[part][2] = words.z, values.words[part][3] = words.w;
    }
    TANDEM_UNROLL
    for (int fragment = 0; fragment < kFragments; ++fragment) {
      MultiplyChunk(weights[fragment], values, sums[fragment][tile]);
    }
  }
}

// Adds the sums of a slice to the totals. The sums of the next slice begin with 0.
__device__ inline void AddSlice(WarpSums& sums, WarpSums& totals) {
  TANDEM_UNROLL
  for (int fragment = 0; fragment < kFragments; ++fragment) {
    TANDEM_UNROLL
    for (int tile = 0; tile < kTiles; ++tile) {
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
  for (int fragment = 0; fragment < kFragments; ++fragment) {
    TANDEM_UNROLL
    for (int tile = 0; tile < kTiles; ++tile) {
      TANDEM_UNROLL
      for (int i = 0; i < 4; ++i) {
        Write(args, row + tile * kColumns + i % 2, feature + fragment * kFeatures + i / 2 * 8,
              totals[fragment][tile][i]);
      }
    }
  }
}

// Grid: (blocks of rows, blocks of features), so that blocks that share weights run at the same
// time. Shared memory: [2, kTileRows, kPieces] of 16 bytes. One half is filled while the other one
// is read.
__global__ void __launch_bounds__(kTileWarps* kWarpSize)
    MatMulManyRowsBf16(MatMulArgs args, int num_slices) {
  const size_t first_row = size_t{blockIdx.x} * kTileRows;
  const size_t first_feature =
      size_t{blockIdx.y} * kTileFeatures + Warp() % 2 * (kFeatures * kFragments);
  const int warp_row = Warp() / 2 * (kColumns * kTiles);
  const int g = Lane() / 4;
  const int t = Lane() % 4;

  const uint16_t* low[kFragments];
  const uint16_t* high[kFragments];
  TANDEM_UNROLL
  for (int fragment = 0; fragment < kFragments; ++fragment) {
    low[fragment] = WeightRow(args, first_feature + fragment * kFeatures + g);
    high[fragment] = WeightRow(args, first_feature + fragment * kFeatures + g + 8);
  }

  // Two threads load a row of x. Each loads two groups of kOfLane values.
  const int my_row = static_cast<int>(threadIdx.x) / 2;
  const int my_group = static_cast<int>(threadIdx.x) % 2 * 2;
  const bool is_row = first_row + my_row < args.rows;
  const float* const mine = args.x + (is_row ? (first_row + my_row) * args.x_stride : 0);
  uint4* const shared = SharedMemory<uint4>();
  const auto bring = [&](unsigned chunk) {
    TANDEM_UNROLL
    for (int i = 0; i < 2; ++i) {
      const size_t k = size_t{chunk} * kChunk + static_cast<size_t>(my_group + i) * kOfLane;
      ValueWords values;
      SplitValues(mine + k, is_row && k < args.in_features, &values);
      uint4* const to = shared + (chunk % 2 * kTileRows + my_row) * kPieces + my_group + i;
      TANDEM_UNROLL
      for (int part = 0; part < kParts; ++part) {
        const uint32_t(&words)[4] = values.words[part];
        to[part * kGroups] = make_uint4(words[0], words[1], words[2], words[3]);
      }
    }
  };

  WarpSums totals = {};
  WarpSums sums = {};
  const auto num_chunks = static_cast<unsigned>((args.in_features + kChunk - 1) / kChunk);
  int slice = 0;
  WeightWords next[kFragments];
  const auto fetch = [&](unsigned chunk) {
    const size_t k = size_t{chunk} * kChunk + static_cast<size_t>(t) * kOfLane;
    TANDEM_UNROLL
    for (int fragment = 0; fragment < kFragments; ++fragment) {
      next[fragment] = LoadWeights(low[fragment], high[fragment], k, args.in_features);
    }
  };
  bring(0);
  fetch(0);
  for (unsigned chunk = 0; chunk < num_chunks; ++chunk) {
    __syncthreads();  // this chunk is there, and the one before it has been read
    WeightWords weights[kFragments];
    TANDEM_UNROLL
    for (int fragment = 0; fragment < kFragments; ++fragment) weights[fragment] = next[fragment];
    if (chunk + 1 < num_chunks) {
      fetch(chunk + 1);
      bring(chunk + 1);
    }
    MultiplyTiles(weights, shared + (chunk % 2 * kTileRows + warp_row + g) * kPieces + t, sums);
    // A slice without chunks would add 0, which changes nothing.
    while (slice < num_slices && SliceBegin(slice + 1, num_slices, num_chunks) <= chunk) ++slice;
    if (chunk + 1 != SliceBegin(slice + 1, num_slices, num_chunks)) continue;
    AddSlice(sums, totals);
  }
  WriteTotals(args, first_row + warp_row + t * 2, first_feature + g, totals);
}

absl::Status LaunchManyRows(const MatMulArgs& args, CudaStream stream) {
  LaunchShape shape;
  shape.grid = dim3(static_cast<unsigned>((args.rows + kTileRows - 1) / kTileRows),
                    static_cast<unsigned>((args.out_features + kTileFeatures - 1) / kTileFeatures));
  shape.block = dim3(kTileWarps * kWarpSize);
  shape.shared_bytes = size_t{2} * kTileRows * kPieces * sizeof(uint4);
  return Launch("MatMul", MatMulManyRowsBf16, shape, stream, args, NumSlices(args.out_features));
}

}  // namespace

absl::Status MatMulBf16(const MatMulArgs& args, CudaStream stream) {
  if (args.rows <= kColumns) return LaunchFewRows<1>(args, stream);
  if (args.rows <= 2 * kColumns) return LaunchFewRows<2>(args, stream);
  if (args.rows <= 4 * kColumns) return LaunchFewRows<4>(args, stream);
  return LaunchManyRows(args, stream);
}

}  // namespace tandem
