// Causal attention of a decoder over the cached keys and values of its sequences, and how those are
// laid out.
#ifndef TANDEM_KERNELS_ATTENTION_H_
#define TANDEM_KERNELS_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/cuda/stream.h"
#include "kernels/dtype.h"
#include "kernels/thread_pool.h"

namespace tandem {

// Cache rows are kept in blocks of this many: softmax runs block by block, so partial sums end at
// absolute positions.
inline constexpr size_t kKeyBlock = 64;

// Keys and values of one layer of one sequence. A block lies on a page of its own, with those of
// the other layers; any page may hold any block. Its keys are transposed, so that a vector holds
// one dimension of several keys and a score needs no sum over lanes.
//   pages   [num_blocks], each [layers, num_kv_heads, keys and values of a block]  f32
//   keys    [head_size, kKeyBlock]
//   values  [kKeyBlock, head_size]
struct KvLayer {
  float* const* pages = nullptr;
  size_t page_offset = 0;  // floats of the layers before this one
  size_t num_kv_heads = 0;
  size_t head_size = 0;

  float* Keys(size_t kv_head, size_t block) const {
    return pages[block] + page_offset + kv_head * 2 * kKeyBlock * head_size;
  }
  float* Values(size_t kv_head, size_t block) const {
    return Keys(kv_head, block) + kKeyBlock * head_size;
  }
};

// Writes cache rows [first_row, first_row + rows). Runs in the caller.
//   keys, values  [rows, num_kv_heads, head_size]  f32, rows keys_stride and values_stride floats
//   apart
struct StoreKvArgs {
  KvLayer kv;
  size_t first_row = 0;
  size_t rows = 0;
  const float* keys = nullptr;
  size_t keys_stride = 0;
  const float* values = nullptr;
  size_t values_stride = 0;
};

void StoreKv(const StoreKvArgs& args);

// Query rows [first_row, first_row + rows) of those that one sequence adds to a pass; row i of the
// pass is in cache row cached_len + i, stored before. It sees cache rows [0, cached_len), then its
// ancestors in path order, itself the last; with empty `parents` these are rows [0, i] of the pass,
// else those that parents[i] < i leads to (-1: none before).
//   queries  [rows, num_heads, head_size]  f32, rows queries_stride floats apart; head h uses KV
//   head h / (num_heads / num_kv_heads) parents  [first_row + rows] i32, or empty out      like
//   queries; must not overlap them
// Scores are divided by sqrt(head_size). PRECOND: num_kv_heads divides num_heads.
struct AttentionArgs {
  KvLayer kv;
  size_t cached_len = 0;
  size_t first_row = 0;
  size_t rows = 0;
  std::span<const int32_t> parents;
  size_t num_heads = 0;
  const float* queries = nullptr;
  size_t queries_stride = 0;
  float* out = nullptr;
  size_t out_stride = 0;
};

// Several sequences in one parallel region; none of their floats need to be aligned.
//
// Path- and batch-invariant: the bits of a query row depend on itself, and the keys and values that
// it sees, by position. Softmax is the online one (Milakov and Gimelshein 2018) over blocks of
// positions [0, 64), [64, 128), …; a score is one chain of multiply-adds over the dimensions, an
// output element one over the positions. A row of a tree goes the way of the chain that consists of
// its path.
void Attention(std::span<const AttentionArgs> sequences, ThreadPool& pool);

// ---------------------------------------------------------------- on a GPU

// Rows of a pass that a tree may have.
inline constexpr size_t kMaxTreeRows = 16;

// Keys and values of one layer, in device memory: pages of kKeyBlock rows. Rows are not transposed,
// as on the CPU: threads share what they read.
//   pool  [pages, page_stride], a page  [layers, keys and values, num_kv_heads, kKeyBlock,
//               head_size]  dtype
struct DeviceKv {
  void* pool = nullptr;
  DType dtype = DType::kBF16;
  size_t page_stride = 0;   // elements
  size_t layer_offset = 0;  // elements of the layers before this one
  size_t num_kv_heads = 0;
  size_t head_size = 0;
};

// The rows of a pass, of all sequences; a sequence's rows lie together. All arrays are in device
// memory.
//   page_tables  [sequences, table_stride]  i32  the page of each kKeyBlock rows
//   sequences    [rows]  i32
//   cache_rows   [rows]  i32  where the row's own keys and values go
//   cached_lens  [rows]  i32  rows in the cache before the pass: all of them are seen
//   path_lens    [rows]  i32  rows of the pass that are seen, in path order, the row itself the
//               last; >= 1
//   paths        [rows, kMaxTreeRows]  i32  which, counted from the sequence's first; null: chains,
//               0 … path_lens - 1
//   tiles        [num_tiles + 1]  i32  rows [tiles[i], tiles[i + 1]) share what is read: of one
//                sequence; one row where there are paths. At most 16.
struct DeviceRows {
  size_t rows = 0;
  const int32_t* page_tables = nullptr;
  size_t table_stride = 0;
  const int32_t* sequences = nullptr;
  const int32_t* cache_rows = nullptr;
  const int32_t* cached_lens = nullptr;
  const int32_t* path_lens = nullptr;
  const int32_t* paths = nullptr;
  const int32_t* tiles = nullptr;
  size_t num_tiles = 0;
};

// Writes each row's keys and values to its cache row (attention_cuda.cu), rounded to the cache's
// dtype, ties to even.
//   keys, values  [rows, num_kv_heads, head_size]  f32, rows keys_stride and values_stride floats
//               apart
struct DeviceStoreKvArgs {
  DeviceKv kv;
  DeviceRows rows;
  const float* keys = nullptr;
  size_t keys_stride = 0;
  const float* values = nullptr;
  size_t values_stride = 0;
};

absl::Status StoreKv(const DeviceStoreKvArgs& args, CudaStream stream);

// Attention of each row over what it sees (attention_cuda.cu); enqueued on `stream`, nothing waits.
//   queries, out    [rows, num_heads, head_size]  f32, rows queries_stride and out_stride floats
//               apart
//   max_blocks      blocks of kKeyBlock positions that the row which sees most has, or more
//   partial_values  [rows, num_heads, max_blocks, head_size]  f32  scratch, as
//   partial_maxima, partial_sums  [rows, num_heads, max_blocks]  f32
//   scale           of scores: 1 / sqrt(head_size)
// The bits of a row depend on itself and what it sees, by position: see the file. INVALID_ARGUMENT:
// num_kv_heads does not divide num_heads. INTERNAL: a launch was refused.
struct DeviceAttentionArgs {
  DeviceKv kv;
  DeviceRows rows;
  size_t num_heads = 0;
  float scale = 0;
  const float* queries = nullptr;
  size_t queries_stride = 0;
  size_t max_blocks = 0;
  float* partial_values = nullptr;
  float* partial_maxima = nullptr;
  float* partial_sums = nullptr;
  float* out = nullptr;
  size_t out_stride = 0;
};

absl::Status Attention(const DeviceAttentionArgs& args, CudaStream stream);

// Dynamic shared memory that a block of it takes (attention_cuda.cu): devices differ in how much they
// have, so that who loads a model looks first.
size_t AttentionSharedBytes(size_t head_size);

// The same in plain loops over doubles: what tests compare with.
void AttentionReference(const AttentionArgs& args);

}  // namespace tandem

#endif  // TANDEM_KERNELS_ATTENTION_H_
