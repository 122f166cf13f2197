// The numbers that kernels read about the rows of a block. The host fills them in and sends them
// before each walk.
#ifndef TANDEM_COMMON_MODEL_CUDA_ROW_NUMBERS_H_
#define TANDEM_COMMON_MODEL_CUDA_ROW_NUMBERS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/model/cuda/pass_shape.h"
#include "common/model/decoder.h"
#include "common/model/forward_plan.h"
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

  explicit RowNumbers(const Sizes& sizes);

  // Calls take(&pointer, count, name) for the device memory.
  template <typename Take>
  absl::Status LayOut(const Take& take) {
    return take(&device_, offsets_.size, "row numbers");
  }
  // Called once, after the memory was taken. `stream` is used from then on. This object must
  // outlive the work on the stream.
  absl::Status Start(const DeviceStream* stream);

  // Waits until the device has fetched the numbers of the previous block, and then enqueues the
  // copy of this block's numbers. Sets rows and chunks of `shape`.
  absl::Status Send(const ForwardPlan& plan, const RowBlock& block, PassShape* shape);

  // Return arrays in device memory, which Send fills.
  const int32_t* token_ids() const { return device_ + offsets_.token_ids; }  // [rows]
  const int32_t* positions() const { return device_ + offsets_.positions; }  // [rows]
  DeviceRows RowsOf(const AttentionChunk& chunk) const;

 private:
  // The beginning of each array, in entries.
  struct Offsets {
    size_t token_ids = 0;
    size_t positions = 0;
    size_t sequences = 0;
    size_t cache_rows = 0;
    size_t prefix_lens = 0;
    size_t path_lens = 0;
    size_t paths = 0;
    size_t tiles = 0;
    size_t page_tables = 0;
    size_t size = 0;
  };

  // Fills in the numbers of a segment of a block that begins at row `first_row` of the plan.
  void FillSegment(const ForwardPlan& plan, size_t sequence, size_t first_row);
  // Fills in the path of `node`, a row of the item's tree, for row `row` of the block.
  void FillPath(const ForwardItem& item, size_t row, int32_t node, int32_t path_len);
  // Cuts the rows into tiles, and the tiles into chunks.
  void CutChunks(PassShape* shape);
  // Returns the number of rows from `row` on that make the next tile of `chunk`. The rows belong to
  // one sequence, and the room limits their number. Raises the chunk's max_blocks to the blocks
  // that they see.
  size_t NextTile(size_t row, size_t num_rows, AttentionChunk* chunk) const;

  Sizes sizes_;
  Offsets offsets_;
  PinnedMemory staging_;
  DeviceEvent fetched_;
  const DeviceStream* stream_ = nullptr;
  int32_t* device_ = nullptr;  // [offsets_.size]
  int32_t* host_ = nullptr;    // [offsets_.size] in staging_
  std::vector<PlanSegment> segments_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CUDA_ROW_NUMBERS_H_
