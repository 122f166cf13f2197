// Paged attention on a GPU's matrix units.
//
// A warp has 16 pairs of a row and a head, which share a KV head, and goes over blocks of kKeyBlock
// positions. For each block it computes a partial softmax: the scores of all pairs and keys as a
// product of matrices, the exponentials in the registers in which the scores are, and the weighted
// sums of values as a second product, whose left side is these registers (FlashAttention-2, Dao
// 2023). Queries and exponentials are rounded to BF16, and all sums are F32.
//
// The sums are the same wherever a row is computed. A score is a chain of products over 16
// dimensions each, an output element of a partial is a chain of products over 16 positions each,
// and no row or column of a product depends on another one. Positions that a row does not see have
// a weight of exactly 0. Partials are merged block by block in the order of positions
// (kernels/attention/merge.cuh). For many rows, a warp merges them in registers (kMerged). For few
// rows, each thread block has one block of positions and writes its partials, and another kernel
// merges them. The choice does not change bits.
//
// Keys and values of a block are copied to shared memory for all pairs of a thread block. The keys
// and values on a row's path through a tree are copied to the warp's patch instead, row by row, and
// are read where their positions would be.
#include <algorithm>
#include <cmath>

#include "kernels/attention/matrix_attention.h"
#include "kernels/attention/merge.cuh"
#include "kernels/device/async_copy.cuh"
#include "kernels/device/bf16_rows.cuh"
#include "kernels/device/device_code.cuh"
#include "kernels/device/launch.h"
#include "kernels/device/matrix_units.cuh"

namespace tandem::matrix_attention {
namespace {

constexpr int kBlock = static_cast<int>(kKeyBlock);
constexpr int kDepth = static_cast<int>(kMaxDraftDepth);
constexpr int kPairsOfWarp = 16;
constexpr int kMostWarps = 8;
constexpr int kTiles = kBlock / 8;    // products of 8 keys each that make the scores of a block
constexpr int kChunks = kBlock / 16;  // products of 16 keys each that make a weighted sum
constexpr int kDimsAtOnce = 64;       // dimensions of the weighted sums that are computed at once
constexpr int kSumTiles = kDimsAtOnce / 8;

// The bits of a BF16 from 2^64 on, infinities and NaN included.
constexpr unsigned kHuge = 0x5F80;

// 16-byte pieces of a row of keys or values. In shared memory, piece p of row r is at place
// p ^ (r % 8), so that eight rows that are read at once are in different banks.
template <int kHead>
inline constexpr int kPieces = kHead / 8;

// Pieces of shared memory: keys and values of a block, once or twice, then a row of zeros, then the
// patch of each warp.
template <int kHead>
constexpr int SharedPieces(bool merged, int warps) {
  return ((merged ? 4 : 2) * kBlock + 1 + warps * kDepth) * kPieces<kHead>;
}

__device__ inline int VisibleLength(const DeviceRows& rows, int row) {
  return rows.prefix_lens[row] + rows.path_lens[row];
}

__device__ inline int LargestOfWarp(int value) {
  return WarpReduce(value, [](int a, int b) { return a > b ? a : b; });
}

// What a thread block computes: pairs of rows of one tile and heads of one KV head, row by row.
struct Share {
  int first_row;
  int first_pair;  // counted from the tile's first row
  int end_pair;
  int group;  // query heads of the KV head
  size_t kv_head;
  int all_see;     // positions that all rows of the tile see, of those in shared_len
  int shared_len;  // positions whose keys and values all rows read in the same place
  int most;        // positions that some row sees
  const int32_t* page_table;
};

__device__ inline Share ShareOf(const DeviceAttentionArgs& args) {
  const DeviceRows& rows = args.rows;
  Share share;
  share.first_row = 0;
  int end_row = static_cast<int>(rows.rows);
  if (rows.num_tiles > 1) {
    // The last tiles see most, and GPUs begin blocks of threads in the order of their numbers.
    const unsigned tile = static_cast<unsigned>(rows.num_tiles) - 1 - blockIdx.y;
    share.first_row = rows.tiles[tile];
    end_row = rows.tiles[tile + 1];
  }
  const int num_kv_heads = static_cast<int>(args.kv.num_kv_heads);
  const int part = static_cast<int>(blockIdx.x) / num_kv_heads;
  share.kv_head = static_cast<size_t>(static_cast<int>(blockIdx.x) - part * num_kv_heads);
  share.group = static_cast<int>(args.num_heads) / num_kv_heads;
  const int pairs_of_part = static_cast<int>(blockDim.x) / kWarpSize * kPairsOfWarp;
  share.first_pair = part * pairs_of_part;
  share.end_pair = min(share.first_pair + pairs_of_part, (end_row - share.first_row) * share.group);
  // The rows of a tile are a chain, and then a tree. The last row has the longest prefix.
  share.shared_len = rows.prefix_lens[end_row - 1];
  share.all_see = min(VisibleLength(rows, share.first_row), share.shared_len);
  share.most = share.shared_len;
  if (rows.path_lens[end_row - 1] > 0) {
    for (int row = share.first_row + Lane(); row < end_row; row += kWarpSize) {
      share.most = max(share.most, VisibleLength(rows, row));
    }
    share.most = LargestOfWarp(share.most);
  }
  share.page_table = rows.PageTable(static_cast<size_t>(share.first_row));
  return share;
}

// One block of positions.
struct Block {
  int begin;        // its first position
  int first_seen;   // counted from the beginning: positions before it are hidden
  int shared_end;   // positions in shared memory, hidden ones included. May be 0
  int all_see_end;  // those of them that all rows of the tile see
  bool has_paths;   // some row sees positions past those in shared memory
};

__device__ inline Block BlockOf(const DeviceAttentionArgs& args, const Share& share, int begin) {
  const int shared_end = max(min(share.shared_len - begin, kBlock), 0);
  return {.begin = begin,
          .first_seen = begin == 0 ? static_cast<int>(args.hidden_rows) : 0,
          .shared_end = shared_end,
          .all_see_end = max(min(share.all_see - begin, kBlock), 0),
          .has_paths = shared_end < kBlock && share.most > share.shared_len};
}

// Returns where the keys of a cache row begin. The values begin args.kv.ValueOffset() later.
__device__ inline const uint16_t* KeysOf(const DeviceAttentionArgs& args, const Share& share,
                                         int cache_row) {
  const auto page = static_cast<size_t>(share.page_table[cache_row / kBlock]);
  return static_cast<const uint16_t*>(args.kv.pool) +
         args.kv.KeysAt(page, share.kv_head, static_cast<size_t>(cache_row % kBlock));
}

// Begins to copy the keys and the values of a block to shared memory, as one group each. What is
// not shared or hidden becomes 0. All threads of the block take part.
//   shared  keys [kBlock, kPieces], values [kBlock, kPieces]
template <int kHead>
__device__ void BeginToLoad(const DeviceAttentionArgs& args, const Share& share, int begin,
                            uint4* shared) {
  constexpr int kOfBlock = kBlock * kPieces<kHead>;
  const Block block = BlockOf(args, share, begin);
  const uint16_t* const keys = KeysOf(args, share, begin);
  TANDEM_UNROLL
  for (int matrix = 0; matrix < 2; ++matrix) {
    const uint16_t* const from = keys + (matrix == 0 ? 0 : args.kv.ValueOffset());
    uint4* const to = shared + matrix * kOfBlock;
    for (int i = static_cast<int>(threadIdx.x); i < kOfBlock; i += static_cast<int>(blockDim.x)) {
      const int slot = i / kPieces<kHead>;
      const int piece = i % kPieces<kHead>;
      CopyAsync16(to + slot * kPieces<kHead> + (piece ^ slot % 8), from + i * 8,
                  slot >= block.first_seen && slot < block.shared_end);
    }
    EndCopyGroup();
  }
}

// Returns whether this thread has copied a value that is huge or not finite to a position that only
// some rows of the tile see. Times 0, such a value could make NaN for the others.
template <int kHead>
__device__ bool HasHugeValue(const Block& block, const uint4* values) {
  if (block.all_see_end >= block.shared_end) return false;
  bool is_huge = false;
  for (int i = static_cast<int>(threadIdx.x); i < kBlock * kPieces<kHead>;
       i += static_cast<int>(blockDim.x)) {
    const int slot = i / kPieces<kHead>;
    if (slot < block.all_see_end) continue;
    const uint4 piece = values[slot * kPieces<kHead> + (i % kPieces<kHead> ^ slot % 8)];
    for (const unsigned word : {piece.x, piece.y, piece.z, piece.w}) {
      is_huge = is_huge || (word & 0x7FFFu) >= kHuge || (word >> 16 & 0x7FFFu) >= kHuge;
    }
  }
  return is_huge;
}

// Where the lanes of a warp read the keys or the values of positions: all in shared memory.
template <int kHead>
struct SharedRows {
  const uint4* rows;

  __device__ const uint4* At(int slot) const { return rows + slot * kPieces<kHead>; }
};

// The same for one row of the tile: what it does not see is 0, and the positions on its path are in
// the warp's patch. Position p of the block is there in row p % kDepth.
template <int kHead>
struct RowsOfOne {
  const uint4* rows;
  const uint4* patch;
  const uint4* zeros;
  int shared_end;
  int visible;

  __device__ const uint4* At(int slot) const {
    if (slot >= visible) return zeros;
    return slot < shared_end ? rows + slot * kPieces<kHead>
                             : patch + slot % kDepth * kPieces<kHead>;
  }
};

// The pairs of a warp. A lane has two: Lane() / 4 and 8 more.
struct Pairs {
  int rows[2];
  int heads[2];
  int visible[2];  // positions
  bool there[2];   // a warp's last pairs may be missing, and are copies of the last one
  int first_row;   // the first row of the warp's pairs
  int last_row;
  int most;    // positions that some pair sees
  int fewest;  // positions that all pairs see

  // Returns the positions of a block that a pair of the lane sees. May be 0 or less.
  __device__ int VisibleOf(int pair, const Block& block) const {
    return visible[pair] - block.begin;
  }
};

// PRECOND: the warp has a pair.
__device__ inline Pairs PairsOf(const DeviceAttentionArgs& args, const Share& share) {
  const int first = share.first_pair + Warp() * kPairsOfWarp;
  const int last = min(first + kPairsOfWarp, share.end_pair) - 1;
  Pairs pairs;
  TANDEM_UNROLL
  for (int i = 0; i < 2; ++i) {
    const int mine = first + Lane() / 4 + i * 8;
    const int pair = min(mine, last);
    const int row = pair / share.group;
    pairs.there[i] = mine <= last;
    pairs.rows[i] = share.first_row + row;
    pairs.heads[i] = static_cast<int>(share.kv_head) * share.group + pair - row * share.group;
    pairs.visible[i] = VisibleLength(args.rows, pairs.rows[i]);
  }
  pairs.first_row = share.first_row + first / share.group;
  pairs.last_row = share.first_row + last / share.group;
  pairs.most = LargestOfWarp(max(pairs.visible[0], pairs.visible[1]));
  pairs.fewest = -LargestOfWarp(-min(pairs.visible[0], pairs.visible[1]));
  return pairs;
}

template <int kHead>
using Queries = uint32_t[kHead / 16][4];

// Loads the queries of a warp's pairs, rounded to BF16, as left sides of products.
template <int kHead>
__device__ void LoadQueries(const DeviceAttentionArgs& args, const Pairs& pairs,
                            Queries<kHead>& queries) {
  TANDEM_UNROLL
  for (int i = 0; i < 2; ++i) {
    const float* const from = args.queries +
                              static_cast<size_t>(pairs.rows[i]) * args.queries_stride +
                              static_cast<size_t>(pairs.heads[i] * kHead + Lane() % 4 * 2);
    TANDEM_UNROLL
    for (int j = 0; j < kHead / 8; ++j) {
      queries[j / 2][j % 2 * 2 + i] = PackBf16(from[j * 8], from[j * 8 + 1]);
    }
  }
}

using Scores = float[kTiles][4];

// Computes the products of queries and keys.
template <int kHead, typename Rows>
__device__ void Score(const Queries<kHead>& queries, const Rows& keys, Scores& scores) {
  TANDEM_UNROLL
  for (int tile = 0; tile < kTiles; ++tile) {
    TANDEM_UNROLL
    for (int i = 0; i < 4; ++i) scores[tile][i] = 0;
  }
  TANDEM_UNROLL
  for (int two = 0; two < kHead / 32; ++two) {
    const int place = (two * 4 + Lane() / 8) ^ Lane() % 8;
    TANDEM_UNROLL
    for (int tile = 0; tile < kTiles; ++tile) {
      uint32_t words[4];
      LoadMatrices<false>(keys.At(tile * 8 + Lane() % 8) + place, words);
      const uint32_t low[2] = {words[0], words[1]};
      const uint32_t high[2] = {words[2], words[3]};
      MultiplyFragments(queries[two * 2], low, scores[tile]);
      MultiplyFragments(queries[two * 2 + 1], high, scores[tile]);
    }
  }
}

// A warp's part of the partial softmaxes that is not weighted sums.
struct Softmaxes {
  uint32_t weights[kChunks][4];  // the exponentials in BF16, as left sides of products
  float maxima[2];               // those of the lane's two pairs
  float sums[2];
};

// Makes a pair's exponentials from its scores, of the positions [first_seen, visible) of the block.
// Four lanes have the pair. The sum is that of the rounded exponentials.
template <bool kAllVisible>
__device__ inline void SoftmaxOfPair(const Scores& scores, float scale, int first_seen, int visible,
                                     int pair, Softmaxes* out) {
  float scaled[kTiles][2];
  float largest = -INFINITY;
  TANDEM_UNROLL
  for (int tile = 0; tile < kTiles; ++tile) {
    TANDEM_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int slot = tile * 8 + Lane() % 4 * 2 + i;
      const bool is_visible = kAllVisible || (slot >= first_seen && slot < visible);
      scaled[tile][i] = is_visible ? __fmul_rn(scores[tile][pair * 2 + i], scale) : -INFINITY;
      largest = fmaxf(largest, scaled[tile][i]);
    }
  }
  largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
  largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 2));
  float sum = 0;
  TANDEM_UNROLL
  for (int tile = 0; tile < kTiles; ++tile) {
    const uint32_t word =
        PackBf16(expf(scaled[tile][0] - largest), expf(scaled[tile][1] - largest));
    out->weights[tile / 2][tile % 2 * 2 + pair] = word;
    sum = __fadd_rn(sum, __uint_as_float(word << 16));
    sum = __fadd_rn(sum, __uint_as_float(word & 0xFFFF0000u));
  }
  sum = __fadd_rn(sum, __shfl_xor_sync(kAllLanes, sum, 1));
  sum = __fadd_rn(sum, __shfl_xor_sync(kAllLanes, sum, 2));
  out->maxima[pair] = largest;
  out->sums[pair] = sum;
}

__device__ inline void Softmax(const DeviceAttentionArgs& args, const Pairs& pairs,
                               const Block& block, const Scores& scores, Softmaxes* out) {
  const bool all_visible = block.first_seen == 0 && pairs.fewest >= block.begin + kBlock;
  TANDEM_UNROLL
  for (int pair = 0; pair < 2; ++pair) {
    const int visible = pairs.VisibleOf(pair, block);
    if (all_visible) {
      SoftmaxOfPair<true>(scores, args.scale, 0, kBlock, pair, out);
    } else {
      SoftmaxOfPair<false>(scores, args.scale, block.first_seen, visible, pair, out);
    }
  }
}

using Sums = float[kSumTiles][4];

// Computes the weighted sums of kDimsAtOnce dimensions of the values, from piece `first_piece` on.
template <typename Rows>
__device__ void Weigh(const Softmaxes& softmaxes, const Rows& values, int first_piece, Sums& sums) {
  TANDEM_UNROLL
  for (int tile = 0; tile < kSumTiles; ++tile) {
    TANDEM_UNROLL
    for (int i = 0; i < 4; ++i) sums[tile][i] = 0;
  }
  TANDEM_UNROLL
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    const uint4* const row = values.At(chunk * 16 + Lane() % 16);
    TANDEM_UNROLL
    for (int tile = 0; tile < kSumTiles; tile += 2) {
      uint32_t words[4];
      LoadMatrices<true>(row + ((first_piece + tile + Lane() / 16) ^ Lane() % 8), words);
      const uint32_t low[2] = {words[0], words[1]};
      const uint32_t high[2] = {words[2], words[3]};
      MultiplyFragments(softmaxes.weights[chunk], low, sums[tile]);
      MultiplyFragments(softmaxes.weights[chunk], high, sums[tile + 1]);
    }
  }
}

// What a warp has merged of its pairs.
template <int kHead>
struct Merged {
  float largest[2] = {-INFINITY, -INFINITY};
  float sums[2] = {};
  float weighted[kHead / 8][4] = {};
};

// Takes the partial softmaxes of a block: merges them, or writes them.
//   takes  which of the lane's two pairs are taken
template <int kHead, bool kMerged, typename Rows>
__device__ void TakeBlock(const DeviceAttentionArgs& args, const Pairs& pairs, const Block& block,
                          const Softmaxes& softmaxes, const Rows& values, const bool (&takes)[2],
                          Merged<kHead>* merged) {
  MergeFactors factors[2] = {};
  size_t partials[2] = {};
  const bool is_first = block.begin == 0;
  TANDEM_UNROLL
  for (int pair = 0; pair < 2; ++pair) {
    if (!takes[pair]) continue;
    if constexpr (kMerged) {
      factors[pair] = RaiseLargest(softmaxes.maxima[pair], &merged->largest[pair]);
      merged->sums[pair] =
          MergeSums(merged->sums[pair], softmaxes.sums[pair], factors[pair], is_first);
    } else {
      partials[pair] =
          (static_cast<size_t>(pairs.rows[pair]) * args.num_heads + pairs.heads[pair]) *
              args.max_blocks +
          block.begin / kBlock;
      if (Lane() % 4 != 0) continue;
      args.partial_maxima[partials[pair]] = softmaxes.maxima[pair];
      args.partial_sums[partials[pair]] = softmaxes.sums[pair];
    }
  }
  TANDEM_UNROLL
  for (int part = 0; part < kHead / kDimsAtOnce; ++part) {
    Sums sums;
    Weigh(softmaxes, values, part * kSumTiles, sums);
    TANDEM_UNROLL
    for (int tile = 0; tile < kSumTiles; ++tile) {
      const int of_head = part * kSumTiles + tile;
      TANDEM_UNROLL
      for (int pair = 0; pair < 2; ++pair) {
        if (!takes[pair]) continue;
        const float first = sums[tile][pair * 2];
        const float second = sums[tile][pair * 2 + 1];
        if constexpr (kMerged) {
          float* const to = merged->weighted[of_head] + pair * 2;
          to[0] = MergeSums(to[0], first, factors[pair], is_first);
          to[1] = MergeSums(to[1], second, factors[pair], is_first);
        } else {
          float* const to = args.partial_values + partials[pair] * kHead + of_head * 8;
          *reinterpret_cast<uint2*>(to + Lane() % 4 * 2) =
              make_uint2(__float_as_uint(first), __float_as_uint(second));
        }
      }
    }
  }
}

// Copies the keys or the values on a row's path to the warp's patch. All lanes take part.
//   offset  0 for keys, args.kv.ValueOffset() for values
template <int kHead>
__device__ void LoadPatch(const DeviceAttentionArgs& args, const Share& share, const Block& block,
                          int row, int visible, size_t offset, uint4* patch) {
  const int prefix_len = args.rows.prefix_lens[row];
  const int32_t* const path = args.rows.paths + row * kDepth;
  const int count = (min(visible, kBlock) - block.shared_end) * kPieces<kHead>;
  __syncwarp();  // All lanes have read what is there.
  for (int i = Lane(); i < count; i += kWarpSize) {
    const int slot = block.shared_end + i / kPieces<kHead>;
    const int piece = i % kPieces<kHead>;
    const int cache_row = prefix_len + path[block.begin + slot - prefix_len];
    const uint16_t* const from = KeysOf(args, share, cache_row) + offset + piece * 8;
    patch[slot % kDepth * kPieces<kHead> + (piece ^ slot % 8)] =
        *reinterpret_cast<const uint4*>(from);
  }
  __syncwarp();
}

// Where a warp finds things in shared memory.
struct Places {
  const uint4* keys;
  const uint4* values;
  const uint4* zeros;
  uint4* patch;
};

// Takes a block in which the rows of a warp read different values, row by row. The softmaxes
// are right, except for rows that have paths.
template <int kHead, bool kMerged>
__device__ void TakeRowByRow(const DeviceAttentionArgs& args, const Share& share,
                             const Pairs& pairs, const Block& block, const Places& places,
                             const Queries<kHead>& queries, Softmaxes* softmaxes,
                             Merged<kHead>* merged) {
  TANDEM_NO_UNROLL
  for (int row = pairs.first_row; row <= pairs.last_row; ++row) {
    const int visible = VisibleLength(args.rows, row) - block.begin;
    if (visible <= 0) continue;
    const bool has_path = block.has_paths && args.rows.path_lens[row] > 0;
    RowsOfOne<kHead> of_row = {places.keys, places.patch, places.zeros, block.shared_end, visible};
    if (has_path) {
      LoadPatch<kHead>(args, share, block, row, visible, 0, places.patch);
      Scores scores;
      Score<kHead>(queries, of_row, scores);
      Softmax(args, pairs, block, scores, softmaxes);
      LoadPatch<kHead>(args, share, block, row, visible, args.kv.ValueOffset(), places.patch);
    }
    of_row.rows = places.values;
    const bool takes[2] = {pairs.there[0] && pairs.rows[0] == row,
                           pairs.there[1] && pairs.rows[1] == row};
    TakeBlock<kHead, kMerged>(args, pairs, block, *softmaxes, of_row, takes, merged);
  }
}

// Writes the result of a warp's pairs. It is rounded as the kernel that merges partials does it.
template <int kHead>
__device__ void WriteMerged(const DeviceAttentionArgs& args, const Pairs& pairs,
                            const Merged<kHead>& merged) {
  TANDEM_UNROLL
  for (int pair = 0; pair < 2; ++pair) {
    if (!pairs.there[pair]) continue;
    uint16_t* const to = args.out_bf16.parts +
                         static_cast<size_t>(pairs.rows[pair]) * args.out_bf16.stride +
                         static_cast<size_t>(pairs.heads[pair] * kHead + Lane() % 4 * 2);
    TANDEM_UNROLL
    for (int tile = 0; tile < kHead / 8; ++tile) {
      const float first = __fdiv_rn(merged.weighted[tile][pair * 2], merged.sums[pair]);
      const float second = __fdiv_rn(merged.weighted[tile][pair * 2 + 1], merged.sums[pair]);
      *reinterpret_cast<uint32_t*>(to + tile * 8) =
          Weight<DType::kBF16>::Narrow(first) |
          static_cast<uint32_t>(Weight<DType::kBF16>::Narrow(second)) << 16;
    }
  }
}

// Grid: (KV heads, once for each part of a tile; tiles; blocks of positions, or 1 if kMerged).
template <int kHead, bool kMerged>
__global__ void __launch_bounds__(kMostWarps* kWarpSize, 1) AttendTile(DeviceAttentionArgs args) {
  WaitForEarlierKernels();
  constexpr int kOfBlock = 2 * kBlock * kPieces<kHead>;
  const Share share = ShareOf(args);
  const int first = kMerged ? 0 : static_cast<int>(blockIdx.z) * kBlock;
  const int end = kMerged ? share.most : first + kBlock;
  if (share.first_pair >= share.end_pair || first >= share.most) return;
  uint4* const shared = SharedMemory<uint4>();
  BeginToLoad<kHead>(args, share, first, shared);
  uint4* const zeros = shared + (kMerged ? 2 : 1) * kOfBlock;
  if (threadIdx.x < kPieces<kHead>) zeros[threadIdx.x] = make_uint4(0, 0, 0, 0);

  // Warps without pairs only copy.
  const bool has_pairs = share.first_pair + Warp() * kPairsOfWarp < share.end_pair;
  Pairs pairs;
  Queries<kHead> queries;
  if (has_pairs) {
    pairs = PairsOf(args, share);
    LoadQueries<kHead>(args, pairs, queries);
  }
  Merged<kHead> merged;
  int turn = 0;
  for (int begin = first; begin < end; begin += kBlock) {
    const uint4* const keys = shared + turn * kOfBlock;
    if constexpr (kMerged) {
      turn = 1 - turn;
      if (begin + kBlock < end) {
        BeginToLoad<kHead>(args, share, begin + kBlock, shared + turn * kOfBlock);
      } else {
        EndCopyGroup();
        EndCopyGroup();
      }
    }
    const Block block = BlockOf(args, share, begin);
    const bool is_seen = has_pairs && begin < pairs.most;
    const Places places = {keys, keys + kOfBlock / 2, zeros,
                           zeros + (1 + Warp() * kDepth) * kPieces<kHead>};
    Softmaxes softmaxes;
    WaitForCopyGroups<kMerged ? 3 : 1>();
    __syncthreads();
    if (is_seen) {
      Scores scores;
      Score<kHead>(queries, SharedRows<kHead>{places.keys}, scores);
      Softmax(args, pairs, block, scores, &softmaxes);
    }
    WaitForCopyGroups<kMerged ? 2 : 0>();
    const bool is_huge = __syncthreads_or(HasHugeValue<kHead>(block, places.values)) != 0;
    if (is_seen && (is_huge || block.has_paths)) {
      TakeRowByRow<kHead, kMerged>(args, share, pairs, block, places, queries, &softmaxes, &merged);
    } else if (is_seen) {
      const bool takes[2] = {pairs.there[0] && pairs.VisibleOf(0, block) > 0,
                             pairs.there[1] && pairs.VisibleOf(1, block) > 0};
      TakeBlock<kHead, kMerged>(args, pairs, block, softmaxes, SharedRows<kHead>{places.values},
                                takes, &merged);
    }
    if constexpr (kMerged) __syncthreads();  // The next copies replace this block.
  }
  if constexpr (kMerged) {
    if (has_pairs) WriteMerged<kHead>(args, pairs, merged);
  }
}

// How the pairs of tiles are shared among thread blocks.
struct Sharing {
  int warps;  // warps of a thread block
  int parts;  // thread blocks of the largest possible tile
};

Sharing SharingOf(const DeviceAttentionArgs& args) {
  const size_t tiles = args.rows.num_tiles;
  const size_t group = args.num_heads / args.kv.num_kv_heads;
  const auto ceil = [](size_t a, size_t b) { return (a + b - 1) / b; };
  const size_t warps =
      std::min<size_t>(ceil(ceil(args.rows.rows, tiles) * group, kPairsOfWarp), kMostWarps);
  const size_t largest = std::min(args.rows.rows - tiles + 1, kMostTileRows) * group;
  return {static_cast<int>(warps), static_cast<int>(ceil(largest, warps * kPairsOfWarp))};
}

// Returns the number of warps of each of `thread_blocks` thread blocks. If there are few, warps
// without pairs help to copy keys and values.
int WarpsThatCopy(int warps, size_t thread_blocks) {
  constexpr size_t kWanted = 528;  // warps of a GPU: four on each multiprocessor of an H200
  constexpr int kMost = 4;
  while (warps < kMost && thread_blocks * static_cast<size_t>(warps + 1) <= kWanted) ++warps;
  return warps;
}

// Returns whether to merge in registers: if partials have no room, or if that should be faster. The
// estimate is in nanoseconds, for an H200.
bool ShouldMerge(const DeviceAttentionArgs& args, const Sharing& sharing) {
  if (args.partial_values == nullptr) return true;
  constexpr double kOfBlock = 1100;    // one block after the other, with two thread blocks at once
  constexpr double kAtOnce = 264;      // on each multiprocessor
  constexpr double kOfSplit = 6000;    // the second kernel, and one block of positions
  constexpr double kOfSplitBlock = 6;  // each thread block, if there are very many
  constexpr double kOfPartialByte = 7e-4;  // writing and reading
  const auto blocks = static_cast<double>(args.max_blocks);
  const auto thread_blocks =
      static_cast<double>(args.kv.num_kv_heads * args.rows.num_tiles) * sharing.parts;
  const double partial_bytes = static_cast<double>(args.rows.rows * args.num_heads) * blocks *
                               static_cast<double>(args.kv.head_size * sizeof(float));
  const double merging = kOfBlock * blocks * std::max(1.0, thread_blocks / kAtOnce);
  return merging <
         kOfSplit + kOfSplitBlock * thread_blocks * blocks + kOfPartialByte * partial_bytes;
}

template <int kHead, bool kMerged>
absl::Status Launch(const DeviceAttentionArgs& args, const Sharing& sharing, CudaStream stream) {
  const dim3 grid(static_cast<unsigned>(args.kv.num_kv_heads) * sharing.parts,
                  static_cast<unsigned>(args.rows.num_tiles),
                  kMerged ? 1 : static_cast<unsigned>(args.max_blocks));
  const int warps = WarpsThatCopy(sharing.warps, size_t{grid.x} * grid.y * grid.z);
  const LaunchShape shape = {.grid = grid,
                             .block = dim3(warps * kWarpSize),
                             .shared_bytes = SharedPieces<kHead>(kMerged, warps) * sizeof(uint4),
                             .starts_early = true};
  auto* const kernel = AttendTile<kHead, kMerged>;
  if (shape.shared_bytes > size_t{48} << 10) {
    absl::Status status = AllowSharedMemory(kernel, shape.shared_bytes);
    if (!status.ok()) return status;
  }
  return tandem::Launch("Attention on matrix units", kernel, shape, stream, args);
}

}  // namespace

bool HasHeads(size_t head_size, DType dtype) {
  return dtype == DType::kBF16 && (head_size == 64 || head_size == 128);
}

bool Takes(const DeviceAttentionArgs& args) {
  return HasHeads(args.kv.head_size, args.kv.dtype) && args.out_bf16.parts != nullptr &&
         args.out_bf16.num_parts == 1;
}

size_t SharedBytes(size_t head_size) {
  const int pieces =
      head_size == 64 ? SharedPieces<64>(true, kMostWarps) : SharedPieces<128>(true, kMostWarps);
  return static_cast<size_t>(pieces) * sizeof(uint4);
}

absl::Status Attend(const DeviceAttentionArgs& args, CudaStream stream, bool* has_partials) {
  const Sharing sharing = SharingOf(args);
  const bool merges = ShouldMerge(args, sharing);
  *has_partials = !merges;
  if (args.kv.head_size == 64) {
    return merges ? Launch<64, true>(args, sharing, stream)
                  : Launch<64, false>(args, sharing, stream);
  }
  return merges ? Launch<128, true>(args, sharing, stream)
                : Launch<128, false>(args, sharing, stream);
}

}  // namespace tandem::matrix_attention
