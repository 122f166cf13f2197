// The numbers that kernels read about the rows of a block. The host fills them in and sends them
// before each walk.
#ifndef TANDEM_COMMON_MODEL_CUDA_ROW_NUMBERS_H_
#define TANDEM_COMMON_MODEL_CUDA_ROW_NUMBERS_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "absl/status/status.h"
#include "common/model/cuda/memory_taker.h"
#include "common/model/cuda/pass_shape.h"
#include "common/model/kv/kv_cache.h"
#include "kernels/attention.h"
#include "kernels/device/device_stream.h"

namespace tandem {

// Holds token ids, positions, page tables and the other arrays of DeviceRows (kernels/attention.h)
// in one piece of device memory, which one copy fills. Used by the thread that enqueues passes.
class RowNumbers {
 public:
  struct Sizes {
    size_t max_rows = 0;      // largest number of rows of a block
    size_t table_stride = 0;  // largest number of pages of a sequence
    size_t num_heads = 0;
    // Number of partial softmaxes that have room. Each row, head and block of keys takes one.
    size_t partial_rows = 0;
  };

  // Rows that a block adds to one cache.
  struct Sequence {
    const KvCache* cache = nullptr;
    size_t length = 0;     // rows of the cache before the first row that is added
    size_t first_row = 0;  // index of this block's first row among those that are added. The ones
                           // before it are in the cache by now
    size_t rows = 0;       // in this block
    // The rows that are added are a tree with these parents from here on. A tree may be cut
    // anywhere.
    size_t tree_begin = std::numeric_limits<size_t>::max();
    std::span<const int32_t> parents = {};
  };
  // The rows of a block, sequence by sequence.
  struct Block {
    std::span<const int32_t> token_ids;  // [rows]
    std::span<const int32_t> positions;  // [rows]
    std::span<const Sequence> sequences;
    std::span<const int32_t> sources = {};  // [rows] any numbers that the caller needs, or nothing
  };

  // Returns where a row of a cache lies in the pool of pages: page * kPageRows + row of the page.
  static int32_t PoolRow(const KvCache& cache, size_t row) {
    return static_cast<int32_t>(cache.PageIndex(row / kPageRows) * kPageRows + row % kPageRows);
  }

  explicit RowNumbers(const Sizes& sizes);

  absl::Status LayOut(const MemoryTaker& take) {
    return take(&device_, offsets_.size, "row numbers");
  }
  // Called once, after the memory was taken. `stream` is used from then on. This object must
  // outlive the work on the stream.
  absl::Status Start(const DeviceStream* stream);

  // Waits until the device has fetched the numbers of the previous block, and then enqueues the
  // copy of this block's numbers. Sets rows, chunks and whole of `shape`.
  absl::Status Send(const Block& block, PassShape* shape);

  // Return arrays in device memory, which Send fills.
  const int32_t* token_ids() const { return device_ + offsets_.token_ids; }  // [rows]
  const int32_t* positions() const { return device_ + offsets_.positions; }  // [rows]
  const int32_t* sources() const { return device_ + offsets_.sources; }      // [rows]
  // [rows] PoolRow of each row.
  const int32_t* pool_rows() const { return device_ + offsets_.pool_rows; }
  DeviceRows RowsOf(const AttentionChunk& chunk) const;

 private:
  // The beginning of each array, in entries.
  struct Offsets {
    size_t token_ids = 0;
    size_t positions = 0;
    size_t sources = 0;
    size_t pool_rows = 0;
    size_t sequences = 0;
    size_t cache_rows = 0;
    size_t prefix_lens = 0;
    size_t path_lens = 0;
    size_t paths = 0;
    size_t tiles = 0;
    size_t page_tables = 0;
    size_t size = 0;
  };

  // Fills in the numbers of the block's sequence `index`, whose rows begin at row `first`.
  void FillSequence(const Sequence& sequence, size_t index, size_t first);
  // Fills in the path of `node`, a row of the sequence's tree, for row `row` of the block.
  void FillPath(const Sequence& sequence, size_t row, int32_t node, int32_t path_len);
  // Cuts the rows into tiles, and the tiles into chunks.
  void CutChunks(PassShape* shape);
  // Returns the chunk that begins at row `first_row` and has as many tiles as `partial_rows`
  // partial softmaxes allow. Writes its tiles, from entry *num_entries on.
  AttentionChunk CutChunk(size_t first_row, size_t num_rows, size_t partial_rows,
                          size_t* num_entries);
  // Returns the number of rows from `row` on that make the next tile of `chunk`. The rows belong to
  // one sequence, and the room limits their number. Raises the chunk's max_blocks to the blocks
  // that they see.
  size_t NextTile(size_t row, size_t num_rows, size_t partial_rows, AttentionChunk* chunk) const;

  Sizes sizes_;
  Offsets offsets_;
  PinnedMemory staging_;
  DeviceEvent fetched_;
  const DeviceStream* stream_ = nullptr;
  int32_t* device_ = nullptr;  // [offsets_.size]
  int32_t* host_ = nullptr;    // [offsets_.size] in staging_
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CUDA_ROW_NUMBERS_H_
