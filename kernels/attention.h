// Causal attention of a decoder over the cached keys and values of its sequences, and how those are
// laid out.
#ifndef TANDEM_KERNELS_ATTENTION_H_
#define TANDEM_KERNELS_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/device/bf16_rows.h"
#include "kernels/device/stream.h"
#include "kernels/dtype.h"
#include "kernels/sampling/draft_shape.h"
#include "kernels/thread_pool.h"

namespace tandem {

// Number of cache rows in a block. Softmax runs block by block, so that partial sums end at
// absolute positions.
inline constexpr size_t kKeyBlock = 64;

// Keys and values of one layer of one sequence. Each block lies on a page of its own, together with
// the same block of the other layers. Any page may hold any block. The keys of a block are
// transposed: a vector holds one dimension of several keys, and a score needs no sum over lanes.
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
//   keys    [rows, num_kv_heads, head_size]  f32, rows keys_stride floats apart
//   values  [rows, num_kv_heads, head_size]  f32, rows values_stride floats apart
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

// Query rows [first_row, first_row + rows) of the rows that one sequence adds to a pass. Keys and
// values of row i of the pass are in cache row cached_len + i, where StoreKv has put them. The rows
// of the pass are a chain, and then a tree of parents.size() rows if there is one. A row of the
// chain sees the cache rows [0, cached_len) and the rows [0, i] of the pass. Row i of the tree, row
// tree_begin + i of the pass, sees all rows before the tree, then its ancestors in the tree in path
// order, and at last itself. Its ancestors are the rows that parents[i] < i leads to; -1 ends a
// path.
//   queries  [rows, num_heads, head_size]  f32, rows queries_stride floats apart. Head h uses KV
//                                          head h / (num_heads / num_kv_heads)
//   parents  [rows of the tree]            i32, or empty
//   out      [rows, num_heads, head_size]  f32, rows out_stride floats apart; must not overlap
//                                          queries
// Scores are divided by sqrt(head_size). Nobody sees the first hidden_rows cache rows, whose values
// must be finite. PRECOND: num_kv_heads divides num_heads. Every row sees some row. hidden_rows is
// less than kKeyBlock.
struct AttentionArgs {
  KvLayer kv;
  size_t hidden_rows = 0;
  size_t cached_len = 0;
  size_t first_row = 0;
  size_t rows = 0;
  std::span<const int32_t> parents;
  size_t tree_begin = 0;  // number of rows of the pass before the tree
  size_t num_heads = 0;
  const float* queries = nullptr;
  size_t queries_stride = 0;
  float* out = nullptr;
  size_t out_stride = 0;

  // Returns whether a row of the pass belongs to the tree.
  bool IsOfTree(size_t row) const { return !parents.empty() && row >= tree_begin; }
};

// Computes several sequences in one parallel region. Nothing needs to be aligned.
//
// The result is path- and batch-invariant: the bits of a query row depend only on the row and on
// the keys and values that it sees, by position. Softmax is the online algorithm (Milakov and
// Gimelshein 2018) over blocks of positions [0, 64), [64, 128), …. A score is one chain of
// multiply-adds over the dimensions, and an output element is one chain over the positions. A row
// of a tree has the bits of the chain that consists of the row's path.
void Attention(std::span<const AttentionArgs> sequences, ThreadPool& pool);

// ---------------------------------------------------------------- on a GPU

// Keys and values of one layer in device memory, in pages of kKeyBlock rows. Unlike on the CPU,
// keys are not transposed, because the threads of a block share the rows that they read.
//   pool  [pages, page_stride]  dtype
//   page  [layers, keys and values, num_kv_heads, kKeyBlock, head_size]
struct DeviceKv {
  void* pool = nullptr;
  DType dtype = DType::kBF16;
  size_t page_stride = 0;   // elements
  size_t layer_offset = 0;  // elements of the layers before this one
  size_t num_kv_heads = 0;
  size_t head_size = 0;

  // Returns where the keys of row `row` of a page begin, in elements of the pool. The row's values
  // begin ValueOffset() elements later.
  constexpr size_t KeysAt(size_t page, size_t kv_head, size_t row) const {
    return page * page_stride + layer_offset + (kv_head * kKeyBlock + row) * head_size;
  }
  constexpr size_t ValueOffset() const { return num_kv_heads * kKeyBlock * head_size; }
};

// The most rows of a sequence that share the keys and values that are read.
inline constexpr size_t kMostTileRows = 32;

// The rows of a pass for all sequences. The rows of a sequence lie together: those of a chain, and
// then those of a tree. A row sees the first prefix_lens[row] cache rows of its sequence, except
// for the hidden ones, and then the path_lens[row] rows of its path, in path order. All arrays are
// in device memory.
//   page_tables  [sequences, table_stride]  i32  the page of each block of kKeyBlock rows
//   sequences    [rows]                     i32  the sequence that the row belongs to
//   cache_rows   [rows]                     i32  where the row's own keys and values go
//   prefix_lens  [rows]                     i32  chain: cache_rows[row] + 1; tree: the number of
//                                                cache rows before the tree
//   path_lens    [rows]                     i32  chain: 0; tree: the number of the row's ancestors
//                                                in the tree, plus 1 for the row itself; at most
//                                                kMaxDraftDepth
//   paths        [rows, kMaxDraftDepth]     i32  the ancestors and the row itself, counted from the
//                                                tree's first row. Ancestors may be rows of an
//                                                earlier pass. Null if no row has a path
//   tiles        [num_tiles + 1]            i32  rows [tiles[i], tiles[i + 1]) share the keys and
//                                                values that are read: the prefix of the last one.
//                                                A tile has at most kMostTileRows rows, all of one
//                                                sequence. All rows are in tiles, so a single tile
//                                                is not read
struct DeviceRows {
  size_t rows = 0;
  const int32_t* page_tables = nullptr;
  size_t table_stride = 0;
  const int32_t* sequences = nullptr;
  const int32_t* cache_rows = nullptr;
  const int32_t* prefix_lens = nullptr;
  const int32_t* path_lens = nullptr;
  const int32_t* paths = nullptr;
  const int32_t* tiles = nullptr;
  size_t num_tiles = 0;

  // Returns the page table of the row's sequence. Only device code can read the arrays.
  constexpr const int32_t* PageTable(size_t row) const {
    return page_tables + static_cast<size_t>(sequences[row]) * table_stride;
  }
};

// Rotates each row's queries and keys by the angles of the row's position, as Rope does
// (kernels/rope.h), and writes its keys and values to its cache row, rounded to the cache's dtype,
// ties to even (rope_cuda.cu). Queries are rotated in place. Rotated keys go to the cache alone:
// `qkv` keeps keys and values as they were. The work is enqueued on `stream`; the call does not
// wait.
//   positions  [rows]                     i32, in [0, positions of the table)
//   table      [positions, head_size]     f32, the cosines of the head_size / 2 angles, then their
//                                         sines
//   qkv        [rows, queries [num_heads, head_size], keys [num_kv_heads, head_size],
//              values [num_kv_heads, head_size]]  f32, rows qkv_stride floats apart
// Rows are independent. PRECOND: head_size is even. INTERNAL: the launch was refused.
struct DeviceRopeAndStoreArgs {
  DeviceKv kv;
  DeviceRows rows;
  const int32_t* positions = nullptr;
  const float* table = nullptr;
  float* qkv = nullptr;
  size_t qkv_stride = 0;
  size_t num_heads = 0;
};

absl::Status RopeAndStoreKv(const DeviceRopeAndStoreArgs& args, CudaStream stream);

// Attention of each row over the rows that it sees (attention_cuda.cu). The work is enqueued on
// `stream`; the call does not wait.
//   queries         [rows, num_heads, head_size]  f32, rows queries_stride floats apart
//   out             [rows, num_heads, head_size]  f32, rows out_stride floats apart
//   out_bf16        the same in BF16 parts. If it is given, `out` is not written
//   hidden_rows     nobody sees so many first cache rows, as in AttentionArgs
//   max_blocks      at least the number of blocks of kKeyBlock positions that any row sees
//   partial_values  [rows, num_heads, max_blocks, head_size]  f32, scratch
//   partial_maxima  [rows, num_heads, max_blocks]             f32, scratch
//   partial_sums    [rows, num_heads, max_blocks]             f32, scratch. All scratch may be null
//                   unless NeedsPartials
//   scale           factor of the scores: 1 / sqrt(head_size)
// The bits of a row depend only on the row and on the rows that it sees, by position. A row of a
// tree has the bits of the chain that consists of the row's path. INVALID_ARGUMENT: num_kv_heads
// does not divide num_heads. INTERNAL: a launch was refused.
struct DeviceAttentionArgs {
  DeviceKv kv;
  DeviceRows rows;
  size_t num_heads = 0;
  size_t hidden_rows = 0;
  float scale = 0;
  const float* queries = nullptr;
  size_t queries_stride = 0;
  size_t max_blocks = 0;
  float* partial_values = nullptr;
  float* partial_maxima = nullptr;
  float* partial_sums = nullptr;
  float* out = nullptr;
  size_t out_stride = 0;
  Bf16Rows out_bf16 = {};
};

absl::Status Attention(const DeviceAttentionArgs& args, CudaStream stream);

// Returns whether this attention needs room for partial softmaxes. It depends only on the model.
bool NeedsPartials(const DeviceAttentionArgs& args);

// Bytes of dynamic shared memory that a thread block of this kernel takes with a cache of this type
// (attention_cuda.cu). Devices differ in how much they have, so the loader of a model compares
// first. No type takes more than F32.
size_t AttentionSharedBytes(size_t head_size, DType dtype = DType::kF32);

// The same attention in plain loops over doubles. Tests compare with it.
void AttentionReference(const AttentionArgs& args);

}  // namespace tandem

#endif  // TANDEM_KERNELS_ATTENTION_H_
