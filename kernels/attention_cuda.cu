// Paged attention on a GPU for few query rows, split over the context.
//
// One block of threads scores one block of kKeyBlock positions for all rows of a tile and the query
// heads that share a KV head, so that keys and values are read once for all of them. Only the rows
// on a query's path through a tree, at most kMaxDraftDepth, are read for each query. The result for
// a (row, head) is a partial softmax: the largest score, the sum of exponentials, and the weighted
// sum of values. A second kernel merges the partials of a (row, head) in the order of their
// positions (online softmax, Milakov and Gimelshein 2018; split over the context as in
// Flash-Decoding, Dao et al. 2023).
//
// The split is by absolute position and never depends on the batch: a row has the same bits alone
// and with other rows, in decode and in verify. A score is one chain of multiply-adds over the
// dimensions, and an output element of a partial is one chain over the positions of its block. What
// depends on the batch is only who computes a chain: how many (row, head) pairs a warp computes at
// once, and how many blocks of threads share the pairs of a tile.
//
// Few rows must not wait: all keys and values of a block are copied to shared memory at once and
// stay in the cache's own type there, each lane runs several chains side by side, and a load from
// shared memory serves up to kMostPairs pairs.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/attention.h"
#include "kernels/attention/matrix_attention.h"
#include "kernels/attention/merge.cuh"
#include "kernels/device/async_copy.cuh"
#include "kernels/device/bf16_rows.cuh"
#include "kernels/device/device_code.cuh"
#include "kernels/device/launch.h"

namespace tandem {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int kMergeThreads = 128;
constexpr int kBlock = static_cast<int>(kKeyBlock);
static_assert(kBlock == 2 * kWarpSize, "a lane scores two keys");

constexpr int kMostPairs = 4;  // (row, head) pairs that a warp computes at once

// The keys on the paths of two pairs are scored at once.
constexpr int kDepth = static_cast<int>(kMaxDraftDepth);
static_assert(2 * kDepth == kWarpSize, "each lane scores one key on a path");

template <DType kType>
using Stored = typename Weight<kType>::Stored;

// Kernels are compiled for rows of kSlots dimensions in shared memory, so that addresses there are
// known to the compiler. A head has as many slots as it has dimensions, or more. With kAnySize,
// rows have any size and are read one dimension at a time, which is slow. The heads of models that
// are served have slots: their cache rows can be read in pieces of 16 bytes. F32 pages have none,
// because each kernel takes long to compile.
constexpr int kAnySize = 0;

constexpr int SlotsOf(size_t head_size, DType dtype) {
  if (head_size % kEight != 0 || dtype == DType::kF32) return kAnySize;
  for (const int slots : {64, 128, 256}) {
    if (head_size <= static_cast<size_t>(slots)) return slots;
  }
  return kAnySize;
}

// Dimensions of the values that a lane has side by side.
constexpr int DimsOfLane(int slots) { return std::clamp(slots / kWarpSize, 1, 4); }

// Distance from one query or value in shared memory to the next, in elements.
__host__ __device__ constexpr int Stride(int slots, int head_size) {
  return slots == kAnySize ? head_size : slots;
}

// Distance from one key in shared memory to the next, in elements. Each lane of a warp reads
// another key. If they are an odd number of 16-byte pieces apart, then eight lanes that read at
// once use all banks.
__host__ __device__ constexpr int KeyStride(int slots, int head_size, size_t element_bytes) {
  return slots == kAnySize ? head_size : slots + 16 / static_cast<int>(element_bytes);
}

// Floats that a warp has in shared memory: the queries of its pairs, and later, in their place, the
// probabilities of their keys.
__host__ __device__ constexpr int WarpFloats(int slots, int head_size) {
  const int stride = Stride(slots, head_size);
  return kMostPairs * (stride > kBlock ? stride : kBlock);
}

// Returns the number of positions that a row sees.
__device__ inline int VisibleLength(const DeviceRows& rows, size_t row) {
  return rows.prefix_lens[row] + rows.path_lens[row];
}

// Several dimensions of a cache row as they are stored, so that a thread can have many loads on
// their way in few registers.
template <DType kType, int kDims>
struct Piece {
  static constexpr int kWords = kDims * static_cast<int>(sizeof(Stored<kType>)) / 4;
  struct alignas(4 * kWords) Words {
    unsigned words[kWords];
  } of;

  __device__ void Load(const Stored<kType>* from) { of = *reinterpret_cast<const Words*>(from); }
  __device__ void Widen(float* to) const {
    TANDEM_UNROLL
    for (int i = 0; i < kWords; ++i) {
      if constexpr (kType == DType::kF32) {
        to[i] = __uint_as_float(of.words[i]);
      } else {
        to[2 * i] = Weight<kType>::Widen(static_cast<uint16_t>(of.words[i]));
        to[2 * i + 1] = Weight<kType>::Widen(static_cast<uint16_t>(of.words[i] >> 16));
      }
    }
  }
};
template <DType kType>
struct Piece<kType, 1> {
  Stored<kType> of;

  __device__ void Load(const Stored<kType>* from) { of = *from; }
  __device__ void Widen(float* to) const { to[0] = Weight<kType>::Widen(of); }
};

// One block of positions, as a tile sees it: the first num_shared positions are in shared memory,
// and the positions after them, which are on paths, are read from the cache.
//   keys    [kBlock, KeyStride]
//   values  [kBlock, Stride]
template <DType kType>
struct KeyBlock {
  int begin = 0;
  int num_shared = 0;
  size_t kv_head = 0;
  const int32_t* page_table = nullptr;
  Stored<kType>* keys = nullptr;
  Stored<kType>* values = nullptr;
};

// The pairs that a warp computes at once. If there are fewer, the last one is there several times:
// it is computed several times and written several times with the same bits.
template <int kPairs>
struct Pairs {
  int rows[kPairs];
  int heads[kPairs];
  int visible[kPairs];  // positions of the key block that the row sees. May be 0 or less
};

// Returns the pairs [first, first + kPairs) of a tile. PRECOND: first < end.
template <int kPairs>
__device__ Pairs<kPairs> PairsOf(const DeviceAttentionArgs& args, int first_row, int first, int end,
                                 size_t kv_head, int begin) {
  const int group = static_cast<int>(args.num_heads / args.kv.num_kv_heads);
  Pairs<kPairs> pairs;
  TANDEM_UNROLL
  for (int p = 0; p < kPairs; ++p) {
    const int pair = min(first + p, end - 1);
    const int row = pair / group;
    pairs.rows[p] = first_row + row;
    pairs.heads[p] = static_cast<int>(kv_head) * group + pair - row * group;
    pairs.visible[p] = min(VisibleLength(args.rows, first_row + row) - begin, kBlock);
  }
  return pairs;
}

// Begins to copy the keys and values of a block into shared memory. All threads take part.
template <DType kType, int kSlots>
__device__ void BeginToLoad(const DeviceKv& kv, const KeyBlock<kType>& block) {
  const auto* const pool = static_cast<const Stored<kType>*>(kv.pool);
  const auto page = static_cast<size_t>(block.page_table[block.begin / kBlock]);
  const Stored<kType>* const from_keys = pool + kv.KeysAt(page, block.kv_head, 0);
  const Stored<kType>* const from_values = from_keys + kv.ValueOffset();
  constexpr bool kWide = kSlots != kAnySize;
  constexpr int kStep = kWide ? static_cast<int>(16 / sizeof(Stored<kType>)) : 1;
  const int head_size = static_cast<int>(kv.head_size);
  const int key_stride = KeyStride(kSlots, head_size, sizeof(Stored<kType>));
  const int stride = Stride(kSlots, head_size);
  const int steps = head_size / kStep;  // A cache row has so many.
  int key = static_cast<int>(threadIdx.x) / steps;
  int step = static_cast<int>(threadIdx.x) - key * steps;
  const int more_keys = kThreads / steps;
  const int more_steps = kThreads - more_keys * steps;
  while (key < block.num_shared) {
    const int d = step * kStep;
    const int from = key * head_size + d;
    Stored<kType>* const to_key = block.keys + key * key_stride + d;
    Stored<kType>* const to_value = block.values + key * stride + d;
    if constexpr (kWide) {
      CopyAsync16(to_key, from_keys + from, true);
      CopyAsync16(to_value, from_values + from, true);
    } else {
      *to_key = from_keys[from];
      *to_value = from_values[from];
    }
    key += more_keys;
    step += more_steps;
    if (step >= steps) ++key, step -= steps;
  }
  EndCopyGroup();
}

// Copies the queries of a warp's pairs into its shared memory, [kPairs, Stride].
template <int kSlots, int kPairs>
__device__ void LoadQueries(const DeviceAttentionArgs& args, const Pairs<kPairs>& pairs,
                            float* queries) {
  constexpr int kAhead = 4;
  const int head_size = static_cast<int>(args.kv.head_size);
  const int stride = Stride(kSlots, head_size);
  for (int begin = Lane(); begin < head_size; begin += kAhead * kWarpSize) {
    float loaded[kPairs][kAhead];
    TANDEM_UNROLL
    for (int p = 0; p < kPairs; ++p) {
      const float* const from =
          args.queries + pairs.rows[p] * args.queries_stride + pairs.heads[p] * args.kv.head_size;
      TANDEM_UNROLL
      for (int i = 0; i < kAhead; ++i) {
        const int d = begin + i * kWarpSize;
        loaded[p][i] = d < head_size ? from[d] : 0;
      }
    }
    TANDEM_UNROLL
    for (int p = 0; p < kPairs; ++p) {
      TANDEM_UNROLL
      for (int i = 0; i < kAhead; ++i) {
        const int d = begin + i * kWarpSize;
        if (d < head_size) queries[p * stride + d] = loaded[p][i];
      }
    }
  }
}

// Loads the dimensions that one step of a score takes: eight, or one if rows are not wide.
template <int kSlots>
inline constexpr int kScoreStep = kSlots == kAnySize ? 1 : kEight;

template <DType kType, int kSlots>
__device__ void LoadStep(const Stored<kType>* from, float* to) {
  if constexpr (kSlots == kAnySize) {
    to[0] = Weight<kType>::Widen(from[0]);
  } else {
    LoadEight<kType, Reads::kAgain>(from, to);
  }
}

// Scores the keys in shared memory. A lane scores the keys Lane() and Lane() + kWarpSize. Where
// there is no such key, the score is that of another one. PRECOND: num_shared > 0.
template <DType kType, int kSlots, int kPairs>
__device__ void ScoreInShared(const KeyBlock<kType>& block, int head_size, const float* queries,
                              float (&scores)[kPairs][2]) {
  constexpr int kStep = kScoreStep<kSlots>;
  const int last = block.num_shared - 1;
  const int key_stride = KeyStride(kSlots, head_size, sizeof(Stored<kType>));
  const int stride = Stride(kSlots, head_size);
  const Stored<kType>* const low = block.keys + min(Lane(), last) * key_stride;
  const Stored<kType>* const high = block.keys + min(Lane() + kWarpSize, last) * key_stride;
  for (int d = 0; d < head_size; d += kStep) {
    float keys[2][kStep];
    LoadStep<kType, kSlots>(low + d, keys[0]);
    LoadStep<kType, kSlots>(high + d, keys[1]);
    TANDEM_UNROLL
    for (int p = 0; p < kPairs; ++p) {
      float query[kStep];
      LoadStep<DType::kF32, kSlots>(queries + p * stride + d, query);
      TANDEM_UNROLL
      for (int j = 0; j < kStep; ++j) {
        scores[p][0] = __fmaf_rn(query[j], keys[0][j], scores[p][0]);
        scores[p][1] = __fmaf_rn(query[j], keys[1][j], scores[p][1]);
      }
    }
  }
}

// The keys on the paths of a warp's pairs. In round r, lanes [0, kDepth) have the keys of pair
// 2 * r, and the other lanes have those of pair 2 * r + 1, in path order.
template <int kPairs>
struct OnPaths {
  static constexpr int kRounds = (kPairs + 1) / 2;
  bool any = false;            // some pair has a path in this block
  bool is_there[kRounds];      // the lane has a key in this round
  size_t offsets[kRounds];     // where the key begins, in elements of the pool
  float scores[kRounds] = {};  // what the lane's keys score
};

template <DType kType, int kPairs>
__device__ OnPaths<kPairs> FindOnPaths(const DeviceAttentionArgs& args,
                                       const KeyBlock<kType>& block, const Pairs<kPairs>& pairs) {
  OnPaths<kPairs> on_paths;
  const bool second = Lane() >= kDepth;
  const int key = block.num_shared + Lane() % kDepth;
  TANDEM_UNROLL
  for (int p = 0; p < kPairs; ++p) {
    on_paths.any = on_paths.any || pairs.visible[p] > block.num_shared;
  }
  TANDEM_UNROLL
  for (int r = 0; r < OnPaths<kPairs>::kRounds; ++r) {
    constexpr int kLast = kPairs - 1;
    const int p = 2 * r;
    const int q = p < kLast ? p + 1 : kLast;
    const int row = second ? pairs.rows[q] : pairs.rows[p];
    const int visible = second ? pairs.visible[q] : pairs.visible[p];
    on_paths.is_there[r] = key < visible && (p < kLast || !second);
    on_paths.offsets[r] = 0;
    if (!on_paths.is_there[r]) continue;
    const int prefix_len = args.rows.prefix_lens[row];
    const int cache_row =
        prefix_len + args.rows.paths[row * kDepth + block.begin + key - prefix_len];
    on_paths.offsets[r] = args.kv.KeysAt(static_cast<size_t>(block.page_table[cache_row / kBlock]),
                                         block.kv_head, static_cast<size_t>(cache_row % kBlock));
  }
  return on_paths;
}

// Scores the keys on paths. Each lane reads its keys from the cache, several pieces ahead.
template <DType kType, int kSlots, int kPairs>
__device__ void ScoreOnPaths(const DeviceAttentionArgs& args, const float* queries,
                             OnPaths<kPairs>* on_paths) {
  constexpr int kStep = kScoreStep<kSlots>;
  constexpr int kAhead = 4;
  const int head_size = static_cast<int>(args.kv.head_size);
  TANDEM_UNROLL
  for (int r = 0; r < OnPaths<kPairs>::kRounds; ++r) {
    if (!on_paths->is_there[r]) continue;
    const auto* const key = static_cast<const Stored<kType>*>(args.kv.pool) + on_paths->offsets[r];
    const float* const query = queries + (2 * r + Lane() / kDepth) * Stride(kSlots, head_size);
    float score = 0;
    for (int begin = 0; begin < head_size; begin += kAhead * kStep) {
      float of_key[kAhead][kStep] = {};
      TANDEM_UNROLL
      for (int i = 0; i < kAhead; ++i) {
        const int d = begin + i * kStep;
        if (d < head_size) LoadStep<kType, kSlots>(key + d, of_key[i]);
      }
      TANDEM_UNROLL
      for (int i = 0; i < kAhead; ++i) {
        const int d = begin + i * kStep;
        if (d >= head_size) break;
        float of_query[kStep];
        LoadStep<DType::kF32, kSlots>(query + d, of_query);
        TANDEM_UNROLL
        for (int j = 0; j < kStep; ++j) score = __fmaf_rn(of_query[j], of_key[i][j], score);
      }
    }
    on_paths->scores[r] = score;
  }
}

// Turns the scores of a warp's pairs into probabilities, [kPairs, kBlock] in the warp's shared
// memory, and writes the largest scores and the sums of the partial softmaxes.
template <DType kType, int kPairs>
__device__ void Softmax(const DeviceAttentionArgs& args, const KeyBlock<kType>& block,
                        const Pairs<kPairs>& pairs, const OnPaths<kPairs>& on_paths,
                        float (&scores)[kPairs][2], float* probabilities) {
  if (on_paths.any) {
    TANDEM_UNROLL
    for (int r = 0; r < OnPaths<kPairs>::kRounds; ++r) {
      const int pair = 2 * r + Lane() / kDepth;
      const int key = block.num_shared + Lane() % kDepth;
      if (on_paths.is_there[r]) probabilities[pair * kBlock + key] = on_paths.scores[r];
    }
    __syncwarp();
  }
  const int first_key = block.begin == 0 ? static_cast<int>(args.hidden_rows) : 0;
  TANDEM_UNROLL
  for (int p = 0; p < kPairs; ++p) {
    TANDEM_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int key = Lane() + half * kWarpSize;
      const bool is_visible = key >= first_key && key < pairs.visible[p];
      float score = scores[p][half];
      if (is_visible && key >= block.num_shared) score = probabilities[p * kBlock + key];
      scores[p][half] = is_visible ? __fmul_rn(score, args.scale) : -INFINITY;
    }
  }
  TANDEM_UNROLL
  for (int p = 0; p < kPairs; ++p) {
    const float largest = WarpMax(fmaxf(scores[p][0], scores[p][1]));
    const float low = expf(scores[p][0] - largest);
    const float high = expf(scores[p][1] - largest);
    const float sum = WarpSum(__fadd_rn(low, high));
    probabilities[p * kBlock + Lane()] = low;
    probabilities[p * kBlock + Lane() + kWarpSize] = high;
    if (Lane() == 0 && pairs.visible[p] > 0) {
      const size_t partial = (pairs.rows[p] * args.num_heads + pairs.heads[p]) * args.max_blocks +
                             block.begin / kBlock;
      args.partial_maxima[partial] = largest;
      args.partial_sums[partial] = sum;
    }
  }
  __syncwarp();
}

// Adds the values in shared memory, weighted. `values` are those of the lane's first dimension.
template <DType kType, int kPairs, int kDims>
__device__ void WeighShared(const Stored<kType>* values, int stride, const float* probabilities,
                            const int (&in_shared)[kPairs], float (&sums)[kPairs][kDims]) {
  constexpr int kAhead = 4;
  int common = in_shared[0];
  int most = in_shared[0];
  TANDEM_UNROLL
  for (int p = 1; p < kPairs; ++p) {
    common = min(common, in_shared[p]);
    most = max(most, in_shared[p]);
  }
  int key = 0;
  for (; key + kAhead <= common; key += kAhead) {  // positions that all pairs see
    Piece<kType, kDims> pieces[kAhead];
    float weights[kPairs][kAhead];
    TANDEM_UNROLL
    for (int i = 0; i < kAhead; ++i) pieces[i].Load(values + (key + i) * stride);
    TANDEM_UNROLL
    for (int p = 0; p < kPairs; ++p) {
      const float4 four = *reinterpret_cast<const float4*>(probabilities + p * kBlock + key);
      weights[p][0] = four.x, weights[p][1] = four.y, weights[p][2] = four.z;
      weights[p][3] = four.w;
    }
    TANDEM_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      float value[kDims];
      pieces[i].Widen(value);
      TANDEM_UNROLL
      for (int p = 0; p < kPairs; ++p) {
        TANDEM_UNROLL
        for (int j = 0; j < kDims; ++j) {
          sums[p][j] = __fmaf_rn(weights[p][i], value[j], sums[p][j]);
        }
      }
    }
  }
  for (; key < most; ++key) {
    Piece<kType, kDims> piece;
    float value[kDims];
    piece.Load(values + key * stride);
    piece.Widen(value);
    TANDEM_UNROLL
    for (int p = 0; p < kPairs; ++p) {
      if (key >= in_shared[p]) continue;
      const float weight = probabilities[p * kBlock + key];
      TANDEM_UNROLL
      for (int j = 0; j < kDims; ++j) sums[p][j] = __fmaf_rn(weight, value[j], sums[p][j]);
    }
  }
}

// Adds the values on paths, weighted. `pool` is moved to the lane's first dimension of values.
template <DType kType, int kPairs, int kDims>
__device__ void WeighOnPaths(const Stored<kType>* pool, const KeyBlock<kType>& block,
                             const float* probabilities, const Pairs<kPairs>& pairs,
                             const OnPaths<kPairs>& on_paths, float (&sums)[kPairs][kDims]) {
  // Loads of each pair that are on their way at once, as registers allow.
  constexpr int kAhead = kType == DType::kF32 ? 4 / kPairs : std::min(8 / kPairs, 4);
  int most = 0;
  TANDEM_UNROLL
  for (int p = 0; p < kPairs; ++p) most = max(most, pairs.visible[p] - block.num_shared);
  for (int begin = 0; begin < most; begin += kAhead) {
    Piece<kType, kDims> pieces[kPairs][kAhead];
    TANDEM_UNROLL
    for (int p = 0; p < kPairs; ++p) {
      TANDEM_UNROLL
      for (int i = 0; i < kAhead; ++i) {
        const size_t offset =
            __shfl_sync(kAllLanes, on_paths.offsets[p / 2], p % 2 * kDepth + begin + i);
        if (block.num_shared + begin + i < pairs.visible[p]) pieces[p][i].Load(pool + offset);
      }
    }
    TANDEM_UNROLL
    for (int p = 0; p < kPairs; ++p) {
      TANDEM_UNROLL
      for (int i = 0; i < kAhead; ++i) {
        const int key = block.num_shared + begin + i;
        if (key >= pairs.visible[p]) continue;
        float value[kDims];
        pieces[p][i].Widen(value);
        const float weight = probabilities[p * kBlock + key];
        TANDEM_UNROLL
        for (int j = 0; j < kDims; ++j) sums[p][j] = __fmaf_rn(weight, value[j], sums[p][j]);
      }
    }
  }
}

// Computes the weighted sums of values. A lane has some dimensions side by side, of each pair.
template <DType kType, int kSlots, int kPairs>
__device__ void WeighValues(const DeviceAttentionArgs& args, const KeyBlock<kType>& block,
                            const Pairs<kPairs>& pairs, const OnPaths<kPairs>& on_paths,
                            const float* probabilities) {
  constexpr int kDims = DimsOfLane(kSlots);
  const int head_size = static_cast<int>(args.kv.head_size);
  int in_shared[kPairs];
  TANDEM_UNROLL
  for (int p = 0; p < kPairs; ++p) in_shared[p] = min(pairs.visible[p], block.num_shared);
  for (int begin = 0; begin < head_size; begin += kWarpSize * kDims) {
    // Lanes past the end compute the last dimensions again, because all lanes exchange offsets.
    const int mine = begin + Lane() * kDims;
    const int d = min(mine, head_size - kDims);
    float sums[kPairs][kDims] = {};
    WeighShared<kType, kPairs, kDims>(block.values + d, Stride(kSlots, head_size), probabilities,
                                      in_shared, sums);
    if (on_paths.any) {
      const auto* const pool = static_cast<const Stored<kType>*>(args.kv.pool);
      WeighOnPaths<kType, kPairs, kDims>(pool + args.kv.ValueOffset() + d, block, probabilities,
                                         pairs, on_paths, sums);
    }
    TANDEM_UNROLL
    for (int p = 0; p < kPairs; ++p) {
      if (mine != d || pairs.visible[p] <= 0) continue;
      const size_t partial = (pairs.rows[p] * args.num_heads + pairs.heads[p]) * args.max_blocks +
                             block.begin / kBlock;
      float* const to = args.partial_values + partial * args.kv.head_size + d;
      if constexpr (kDims == 4) {
        *reinterpret_cast<float4*>(to) =
            make_float4(sums[p][0], sums[p][1], sums[p][2], sums[p][3]);
      } else if constexpr (kDims == 2) {
        *reinterpret_cast<uint2*>(to) =
            make_uint2(__float_as_uint(sums[p][0]), __float_as_uint(sums[p][1]));
      } else {
        to[0] = sums[p][0];
      }
    }
  }
}

// Computes the partial softmaxes of the pairs [first, end) of a tile over one block of positions.
// All threads of the block take part. The keys and values are on their way when the call begins.
//   scratch  [WarpFloats]  shared memory of the warp
template <DType kType, int kSlots, int kPairs>
__device__ void AttendPairs(const DeviceAttentionArgs& args, const KeyBlock<kType>& block,
                            int first_row, int first, int end, float* scratch) {
  const int mine = first + Warp() * kPairs;
  Pairs<kPairs> pairs;
  if (mine < end) {
    pairs = PairsOf<kPairs>(args, first_row, mine, end, block.kv_head, block.begin);
    LoadQueries<kSlots, kPairs>(args, pairs, scratch);
  }
  WaitForCopyGroups<0>();
  __syncthreads();
  for (int pair = mine; pair < end; pair += kWarps * kPairs) {
    if (pair != mine) {
      pairs = PairsOf<kPairs>(args, first_row, pair, end, block.kv_head, block.begin);
      LoadQueries<kSlots, kPairs>(args, pairs, scratch);
      __syncwarp();
    }
    float scores[kPairs][2] = {};
    OnPaths<kPairs> on_paths = FindOnPaths<kType, kPairs>(args, block, pairs);
    if (block.num_shared > 0) {
      ScoreInShared<kType, kSlots, kPairs>(block, static_cast<int>(args.kv.head_size), scratch,
                                           scores);
    }
    if (on_paths.any) ScoreOnPaths<kType, kSlots, kPairs>(args, scratch, &on_paths);
    __syncwarp();  // Probabilities replace the queries.
    Softmax<kType, kPairs>(args, block, pairs, on_paths, scores, scratch);
    WeighValues<kType, kSlots, kPairs>(args, block, pairs, on_paths, scratch);
    __syncwarp();  // The next queries replace the probabilities.
  }
}

// Grid: (KV heads, once for each part of a tile; tiles; blocks of positions). The last block of
// positions is often short, and GPUs begin blocks of threads in this order.
//   shared  keys [kBlock, KeyStride], values [kBlock, Stride], [kWarps, WarpFloats]
template <DType kType, int kSlots>
__global__ void __launch_bounds__(kThreads, 2) AttendBlock(DeviceAttentionArgs args, int parts) {
  WaitForEarlierKernels();
  const DeviceRows& rows = args.rows;
  int first_row = 0;
  int end_row = static_cast<int>(rows.rows);
  if (rows.num_tiles > 1) {
    first_row = rows.tiles[blockIdx.y];
    end_row = rows.tiles[blockIdx.y + 1];
  }
  // The last row has the longest prefix. A row of a chain sees nothing else.
  const int prefix_len = rows.prefix_lens[end_row - 1];
  const bool has_paths = rows.path_lens[end_row - 1] > 0;
  KeyBlock<kType> block;
  block.page_table = rows.PageTable(first_row);
  block.begin = static_cast<int>(blockIdx.z) * kBlock;
  block.num_shared = max(min(prefix_len - block.begin, kBlock), 0);
  if (block.begin >= prefix_len + (has_paths ? kDepth : 0)) return;

  const int num_kv_heads = static_cast<int>(args.kv.num_kv_heads);
  const int part = static_cast<int>(blockIdx.x) / num_kv_heads;
  block.kv_head = static_cast<size_t>(static_cast<int>(blockIdx.x) - part * num_kv_heads);
  const int num_pairs = (end_row - first_row) * static_cast<int>(args.num_heads) / num_kv_heads;
  const int pairs_of_part = (num_pairs + parts - 1) / parts;
  const int first = part * pairs_of_part;
  const int end = min(first + pairs_of_part, num_pairs);
  if (first >= end) return;

  const int head_size = static_cast<int>(args.kv.head_size);
  block.keys = SharedMemory<Stored<kType>>();
  block.values = block.keys + kBlock * KeyStride(kSlots, head_size, sizeof(Stored<kType>));
  float* const scratch =
      reinterpret_cast<float*>(block.values + kBlock * Stride(kSlots, head_size)) +
      Warp() * WarpFloats(kSlots, head_size);
  if (block.num_shared > 0) BeginToLoad<kType, kSlots>(args.kv, block);
  if (end - first <= kWarps) {
    AttendPairs<kType, kSlots, 1>(args, block, first_row, first, end, scratch);
  } else if (end - first <= 2 * kWarps) {
    AttendPairs<kType, kSlots, 2>(args, block, first_row, first, end, scratch);
  } else {
    AttendPairs<kType, kSlots, kMostPairs>(args, block, first_row, first, end, scratch);
  }
}

// Grid: (blocks of the elements of a row, rows). Each thread computes kDims dimensions. The first
// partials are loaded before it is known how many there are, so that the loads go on side by side.
template <int kDims>
__global__ void __launch_bounds__(kMergeThreads) MergeBlocks(DeviceAttentionArgs args) {
  WaitForEarlierKernels();
  constexpr int kAhead = 8;
  const auto head_size = static_cast<unsigned>(args.kv.head_size);
  const unsigned element = (blockIdx.x * kMergeThreads + threadIdx.x) * kDims;
  if (element >= args.num_heads * head_size) return;
  const size_t row = blockIdx.y;
  const size_t first = (row * args.num_heads + element / head_size) * args.max_blocks;
  const float* const values = args.partial_values + first * head_size + element % head_size;
  const int num_blocks = (VisibleLength(args.rows, row) + kBlock - 1) / kBlock;
  int num_loaded = static_cast<int>(args.max_blocks);
  float largest = -INFINITY;
  float sum = 0;
  float weighted[kDims] = {};
  int begin = 0;
  do {
    float maxima[kAhead] = {};
    float sums[kAhead] = {};
    Piece<DType::kF32, kDims> pieces[kAhead] = {};
    TANDEM_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      if (begin + i >= num_loaded) break;
      maxima[i] = args.partial_maxima[first + begin + i];
      sums[i] = args.partial_sums[first + begin + i];
      pieces[i].Load(values + static_cast<size_t>(begin + i) * head_size);
    }
    TANDEM_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      if (begin + i >= num_blocks) break;
      float value[kDims];
      pieces[i].Widen(value);
      const MergeFactors factors = RaiseLargest(maxima[i], &largest);
      const bool is_first = begin + i == 0;
      sum = MergeSums(sum, sums[i], factors, is_first);
      TANDEM_UNROLL
      for (int j = 0; j < kDims; ++j) {
        weighted[j] = MergeSums(weighted[j], value[j], factors, is_first);
      }
    }
    begin += kAhead;
    num_loaded = num_blocks;
  } while (begin < num_blocks);
  TANDEM_UNROLL
  for (int j = 0; j < kDims; ++j) {
    const float merged = __fdiv_rn(weighted[j], sum);
    if (args.out_bf16.parts != nullptr) {
      StoreBf16(args.out_bf16, row, element + j, merged);
    } else {
      args.out[row * args.out_stride + element + j] = merged;
    }
  }
}

size_t SharedBytes(size_t head_size, DType dtype) {
  const int slots = SlotsOf(head_size, dtype);
  const auto size = static_cast<int>(head_size);
  const auto elements =
      static_cast<size_t>(KeyStride(slots, size, SizeOf(dtype)) + Stride(slots, size));
  return kKeyBlock * elements * SizeOf(dtype) +
         static_cast<size_t>(kWarps * WarpFloats(slots, size)) * sizeof(float);
}

// Returns the number of blocks of threads that share the pairs of a tile. Where there are few
// blocks, parts keep more multiprocessors busy, and all of them read the same keys and values.
int PartsOfTile(const DeviceAttentionArgs& args) {
  constexpr size_t kWanted = 264;  // twice the multiprocessors of an H100
  constexpr size_t kLeastPairs = 2 * kWarps;
  const size_t blocks = args.max_blocks * args.kv.num_kv_heads * args.rows.num_tiles;
  const size_t pairs =
      args.rows.rows * args.num_heads / (args.kv.num_kv_heads * args.rows.num_tiles);
  int parts = 1;
  while (parts < 4 && 2 * parts * blocks <= kWanted && pairs >= 2 * parts * kLeastPairs) parts *= 2;
  return parts;
}

template <DType kType>
absl::Status Attend(const DeviceAttentionArgs& args, CudaStream stream) {
  const size_t head_size = args.kv.head_size;
  auto* kernel = AttendBlock<kType, kAnySize>;
  if constexpr (kType != DType::kF32) {
    switch (SlotsOf(head_size, kType)) {
      case 64:
        kernel = AttendBlock<kType, 64>;
        break;
      case 128:
        kernel = AttendBlock<kType, 128>;
        break;
      case 256:
        kernel = AttendBlock<kType, 256>;
        break;
    }
  }
  const int parts = PartsOfTile(args);
  const LaunchShape shape = {.grid = dim3(static_cast<unsigned>(args.kv.num_kv_heads * parts),
                                          static_cast<unsigned>(args.rows.num_tiles),
                                          static_cast<unsigned>(args.max_blocks)),
                             .block = dim3(kThreads),
                             .shared_bytes = SharedBytes(head_size, kType),
                             .starts_early = true};
  if (shape.shared_bytes > size_t{48} << 10) {
    absl::Status status = AllowSharedMemory(kernel, shape.shared_bytes);
    if (!status.ok()) return status;
  }
  return Launch("Attention", kernel, shape, stream, args, parts);
}

absl::Status Merge(const DeviceAttentionArgs& args, CudaStream stream) {
  const bool wide = args.kv.head_size % 4 == 0;
  const size_t elements = args.num_heads * args.kv.head_size;
  const size_t elements_of_block = kMergeThreads * (wide ? 4 : 1);
  const LaunchShape shape = {
      .grid = dim3(static_cast<unsigned>((elements + elements_of_block - 1) / elements_of_block),
                   static_cast<unsigned>(args.rows.rows)),
      .block = dim3(kMergeThreads),
      .starts_early = true};
  return Launch("Attention, merge", wide ? MergeBlocks<4> : MergeBlocks<1>, shape, stream, args);
}

}  // namespace

size_t AttentionSharedBytes(size_t head_size, DType dtype) {
  const size_t bytes = SharedBytes(head_size, dtype);
  if (!matrix_attention::HasHeads(head_size, dtype)) return bytes;
  return std::max(bytes, matrix_attention::SharedBytes(head_size));
}

bool NeedsPartials(const DeviceAttentionArgs& args) { return !matrix_attention::Takes(args); }

absl::Status Attention(const DeviceAttentionArgs& args, CudaStream stream) {
  if (args.rows.rows == 0) return absl::OkStatus();
  if (args.num_heads % args.kv.num_kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat("Attention: ", args.num_heads, " heads for ",
                                                   args.kv.num_kv_heads, " KV heads"));
  }
  bool has_partials = true;
  absl::Status status = matrix_attention::Takes(args)
                            ? matrix_attention::Attend(args, stream, &has_partials)
                            : WithType(args.kv.dtype, [&](auto type) {
                                return Attend<decltype(type)::value>(args, stream);
                              });
  if (!status.ok() || !has_partials) return status;
  return Merge(args, stream);
}

}  // namespace tandem
