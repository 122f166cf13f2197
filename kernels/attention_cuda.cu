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
// and with other rows, in decode and in verify.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/attention.h"
#include "kernels/device/device_code.cuh"
#include "kernels/device/launch.h"

namespace tandem {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int kBlock = static_cast<int>(kKeyBlock);
static_assert(kBlock == 2 * kWarpSize, "a lane scores two keys");

// Returns the number of positions that a row sees.
__device__ inline int VisibleLength(const DeviceRows& rows, size_t row) {
  return rows.prefix_lens[row] + rows.path_lens[row];
}

// Returns the cache row of a position on the row's path. PRECOND: the prefix ends before the
// position.
__device__ inline int CacheRowOnPath(const DeviceRows& rows, size_t row, int position) {
  const int prefix_len = rows.prefix_lens[row];
  return prefix_len + rows.paths[row * kMaxDraftDepth + static_cast<size_t>(position - prefix_len)];
}

// Returns the first element of a cache row's keys. The row's values begin value_offset elements
// later.
template <DType kType>
__device__ const typename Weight<kType>::Stored* KeysOf(const DeviceKv& kv,
                                                        const int32_t* page_table, int cache_row,
                                                        size_t kv_head) {
  const auto* const pool = static_cast<const typename Weight<kType>::Stored*>(kv.pool);
  return pool + static_cast<size_t>(page_table[cache_row / kBlock]) * kv.page_stride +
         kv.layer_offset + (kv_head * kKeyBlock + cache_row % kBlock) * kv.head_size;
}

// Returns whether cache rows can be read in pieces of 16 bytes. The heads of real models can.
bool IsWide(size_t head_size) { return head_size % kEight == 0; }

// Distance from one key in shared memory to the next. Each lane of a warp reads another key, and no
// two lanes may read the same bank.
__host__ __device__ constexpr size_t KeyStride(size_t head_size, bool wide) {
  return head_size + (wide ? 4 : 1);
}

// Dot product of a query with a key in shared memory, in the order of the dimensions.
template <bool kWide>
__device__ float Score(const float* query, const float* key, size_t head_size) {
  float score = 0;
  if constexpr (kWide) {
    for (size_t d = 0; d < head_size; d += 4) {
      const float4 four = *reinterpret_cast<const float4*>(key + d);
      score = __fmaf_rn(query[d], four.x, score);
      score = __fmaf_rn(query[d + 1], four.y, score);
      score = __fmaf_rn(query[d + 2], four.z, score);
      score = __fmaf_rn(query[d + 3], four.w, score);
    }
  } else {
    for (size_t d = 0; d < head_size; ++d) score = __fmaf_rn(query[d], key[d], score);
  }
  return score;
}

// The same product with a key in the cache.
template <DType kType, bool kWide>
__device__ float ScoreInCache(const float* query, const typename Weight<kType>::Stored* key,
                              size_t head_size) {
  float score = 0;
  if constexpr (kWide) {
    for (size_t d = 0; d < head_size; d += kEight) {
      float eight[kEight];
      LoadEight<kType, Reads::kAgain>(key + d, eight);
      TANDEM_UNROLL
      for (int j = 0; j < kEight; ++j) score = __fmaf_rn(query[d + j], eight[j], score);
    }
  } else {
    for (size_t d = 0; d < head_size; ++d) {
      score = __fmaf_rn(query[d], Weight<kType>::Widen(key[d]), score);
    }
  }
  return score;
}

__device__ inline const int32_t* PageTableOf(const DeviceRows& rows, size_t row) {
  return rows.page_tables + static_cast<size_t>(rows.sequences[row]) * rows.table_stride;
}

// The first element of the values of a cache row lies so many elements behind that of its keys.
__device__ inline size_t ValueOffset(const DeviceKv& kv) {
  return kv.num_kv_heads * kKeyBlock * kv.head_size;
}

// Loads the keys and values of one KV head in the cache rows [begin, end) into shared memory as
// floats. All threads of the block take part.
//   keys [kBlock, KeyStride], values [kBlock, head_size]
template <DType kType, bool kWide>
__device__ inline void LoadBlock(const DeviceKv& kv, const int32_t* page_table, int begin, int end,
                                 float* keys, float* values) {
  const size_t head_size = kv.head_size;
  const size_t key_stride = KeyStride(head_size, kWide);
  constexpr int kStep =
      kWide ? kEight : 1;  // elements of a cache row that a thread takes at a time
  const int steps = static_cast<int>(head_size) / kStep;
  for (int i = static_cast<int>(threadIdx.x); i < (end - begin) * steps; i += kThreads) {
    const int key = i / steps;
    const int dimension = i % steps * kStep;
    const auto* const from = KeysOf<kType>(kv, page_table, begin + key, blockIdx.y) + dimension;
    float* const to_key = keys + key * key_stride + dimension;
    float* const to_value = values + key * head_size + dimension;
    if constexpr (kWide) {
      float of_key[kEight];
      float of_value[kEight];
      LoadEight<kType, Reads::kAgain>(from, of_key);
      LoadEight<kType, Reads::kAgain>(from + ValueOffset(kv), of_value);
      for (int j = 0; j < kEight; j += 4) {
        *reinterpret_cast<float4*>(to_key + j) =
            make_float4(of_key[j], of_key[j + 1], of_key[j + 2], of_key[j + 3]);
        *reinterpret_cast<float4*>(to_value + j) =
            make_float4(of_value[j], of_value[j + 1], of_value[j + 2], of_value[j + 3]);
      }
    } else {
      *to_key = Weight<kType>::Widen(from[0]);
      *to_value = Weight<kType>::Widen(from[ValueOffset(kv)]);
    }
  }
}

// The keys and values of one block of positions: the first num_shared are in shared memory, and the
// positions after them, which are on paths, are read from the cache.
//   keys [kBlock, KeyStride], values [kBlock, head_size]
struct KeyBlockOfTile {
  int begin = 0;
  int num_shared = 0;
  const float* keys = nullptr;
  const float* values = nullptr;
};

// Computes the partial softmax of one row and head over the first `visible` positions of a block. A
// warp takes part.
//   probabilities  [kBlock]  shared memory of the warp
template <DType kType, bool kWide>
__device__ inline void AttendRow(const DeviceAttentionArgs& args, size_t row, size_t head,
                                 int visible, const KeyBlockOfTile& block, float* probabilities) {
  const size_t head_size = args.kv.head_size;
  const int32_t* const page_table = PageTableOf(args.rows, row);
  const auto keys_on_path = [&](int key) {
    return KeysOf<kType>(args.kv, page_table, CacheRowOnPath(args.rows, row, block.begin + key),
                         blockIdx.y);
  };
  const float* const query = args.queries + row * args.queries_stride + head * head_size;
  float scores[2];
  for (int half = 0; half < 2; ++half) {
    const int key = Lane() + half * kWarpSize;
    scores[half] = -INFINITY;
    if (key < visible) {
      const float score =
          key < block.num_shared
              ? Score<kWide>(query, block.keys + key * KeyStride(head_size, kWide), head_size)
              : ScoreInCache<kType, kWide>(query, keys_on_path(key), head_size);
      scores[half] = __fmul_rn(score, args.scale);
    }
  }
  const float largest = WarpMax(fmaxf(scores[0], scores[1]));
  const float low = expf(scores[0] - largest);
  const float high = expf(scores[1] - largest);
  const float sum = WarpSum(__fadd_rn(low, high));
  probabilities[Lane()] = low;
  probabilities[Lane() + kWarpSize] = high;
  __syncwarp();
  const size_t partial = (row * args.num_heads + head) * args.max_blocks + blockIdx.x;
  const int in_shared = min(visible, block.num_shared);
  for (size_t d = Lane(); d < head_size; d += kWarpSize) {
    float weighted = 0;
    for (int key = 0; key < in_shared; ++key) {
      weighted = __fmaf_rn(probabilities[key], block.values[key * head_size + d], weighted);
    }
    for (int key = in_shared; key < visible; ++key) {
      const float value = Weight<kType>::Widen(keys_on_path(key)[ValueOffset(args.kv) + d]);
      weighted = __fmaf_rn(probabilities[key], value, weighted);
    }
    args.partial_values[partial * head_size + d] = weighted;
  }
  if (Lane() == 0) {
    args.partial_maxima[partial] = largest;
    args.partial_sums[partial] = sum;
  }
  __syncwarp();
}

// Grid: (blocks of positions, KV heads, tiles).
//   shared  keys [kBlock, KeyStride], values [kBlock, head_size], probabilities [kWarps, kBlock]
template <DType kType, bool kWide>
__global__ void __launch_bounds__(kThreads) AttendBlock(DeviceAttentionArgs args) {
  const DeviceRows& rows = args.rows;
  const int first_row = rows.tiles[blockIdx.z];
  const int end_row = rows.tiles[blockIdx.z + 1];
  const int begin = static_cast<int>(blockIdx.x) * kBlock;
  // The last row has the longest prefix. A row of a chain sees nothing else.
  const int end = min(rows.prefix_lens[end_row - 1], begin + kBlock);
  if (begin >= end && rows.path_lens[end_row - 1] == 0) return;

  const size_t head_size = args.kv.head_size;
  float* const keys = SharedMemory<float>();
  float* const values = keys + kBlock * KeyStride(head_size, kWide);
  float* const probabilities = values + kBlock * head_size + Warp() * kBlock;
  LoadBlock<kType, kWide>(args.kv, PageTableOf(rows, first_row), begin, end, keys, values);
  __syncthreads();

  const KeyBlockOfTile block = {begin, max(end - begin, 0), keys, values};
  const int group = static_cast<int>(args.num_heads / args.kv.num_kv_heads);
  for (int pair = Warp(); pair < (end_row - first_row) * group; pair += kWarps) {
    const size_t row = static_cast<size_t>(first_row + pair / group);
    const int visible =
        min(VisibleLength(rows, row) - begin, kBlock);  // positions of this block that the row sees
    if (visible <= 0) continue;
    const size_t head = size_t{blockIdx.y} * group + pair % group;
    AttendRow<kType, kWide>(args, row, head, visible, block, probabilities);
  }
}

// Grid: (heads, rows). Each thread computes one dimension.
__global__ void MergeBlocks(DeviceAttentionArgs args) {
  const size_t row = blockIdx.y;
  const size_t head = blockIdx.x;
  const size_t head_size = args.kv.head_size;
  const int num_blocks = (VisibleLength(args.rows, row) + kBlock - 1) / kBlock;
  const size_t first = (row * args.num_heads + head) * args.max_blocks;
  for (size_t d = threadIdx.x; d < head_size; d += blockDim.x) {
    float largest = args.partial_maxima[first];
    float sum = args.partial_sums[first];
    float weighted = args.partial_values[first * head_size + d];
    for (int block = 1; block < num_blocks; ++block) {
      const size_t partial = first + block;
      const float other = args.partial_maxima[partial];
      const float both = fmaxf(largest, other);
      const float keep = expf(largest - both);
      const float take = expf(other - both);
      sum = __fmaf_rn(sum, keep, __fmul_rn(args.partial_sums[partial], take));
      weighted =
          __fmaf_rn(weighted, keep, __fmul_rn(args.partial_values[partial * head_size + d], take));
      largest = both;
    }
    args.out[row * args.out_stride + head * head_size + d] = __fdiv_rn(weighted, sum);
  }
}

// Grid: (blocks of the elements of a row's keys, rows).
template <DType kType>
__global__ void __launch_bounds__(kThreads) StoreRow(DeviceStoreKvArgs args) {
  const size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= args.kv.num_kv_heads * args.kv.head_size) return;
  const size_t row = blockIdx.y;
  const int32_t* const table = PageTableOf(args.rows, row);
  const size_t kv_head = i / args.kv.head_size;
  using Stored = typename Weight<kType>::Stored;
  auto* const to =
      const_cast<Stored*>(KeysOf<kType>(args.kv, table, args.rows.cache_rows[row], kv_head)) +
      i % args.kv.head_size;
  to[0] = Weight<kType>::Narrow(args.keys[row * args.keys_stride + i]);
  to[ValueOffset(args.kv)] = Weight<kType>::Narrow(args.values[row * args.values_stride + i]);
}

}  // namespace

size_t AttentionSharedBytes(size_t head_size) {
  return kKeyBlock * (KeyStride(head_size, IsWide(head_size)) + head_size + kWarps) * sizeof(float);
}

absl::Status StoreKv(const DeviceStoreKvArgs& args, CudaStream stream) {
  if (args.rows.rows == 0) return absl::OkStatus();
  const size_t elements = args.kv.num_kv_heads * args.kv.head_size;
  return WithType(args.kv.dtype, [&](auto type) {
    return Launch("StoreKv", StoreRow<decltype(type)::value>,
                  {dim3(static_cast<unsigned>((elements + kThreads - 1) / kThreads),
                        static_cast<unsigned>(args.rows.rows)),
                   dim3(kThreads)},
                  stream, args);
  });
}

absl::Status Attention(const DeviceAttentionArgs& args, CudaStream stream) {
  if (args.rows.rows == 0) return absl::OkStatus();
  if (args.num_heads % args.kv.num_kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat("Attention: ", args.num_heads, " heads for ",
                                                   args.kv.num_kv_heads, " KV heads"));
  }
  const size_t shared_bytes = AttentionSharedBytes(args.kv.head_size);
  const absl::Status attended = WithType(args.kv.dtype, [&](auto type) {
    constexpr DType kType = decltype(type)::value;
    auto* const kernel =
        IsWide(args.kv.head_size) ? AttendBlock<kType, true> : AttendBlock<kType, false>;
    if (absl::Status status = AllowSharedMemory(kernel, shared_bytes); !status.ok()) return status;
    return Launch(
        "Attention", kernel,
        {dim3(static_cast<unsigned>(args.max_blocks), static_cast<unsigned>(args.kv.num_kv_heads),
              static_cast<unsigned>(args.rows.num_tiles)),
         dim3(kThreads), shared_bytes},
        stream, args);
  });
  if (!attended.ok()) return attended;
  return Launch("Attention, merge", MergeBlocks,
                {dim3(static_cast<unsigned>(args.num_heads), static_cast<unsigned>(args.rows.rows)),
                 dim3(kThreads)},
                stream, args);
}

}  // namespace tandem
