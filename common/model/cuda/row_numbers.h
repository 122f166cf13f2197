// What kernels read about the rows of a block: the host fills it in and sends it before each walk.
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

// Token ids, positions, page tables and what else the arrays of DeviceRows hold
// (kernels/attention.h), in one piece of device memory that one copy fills. Used by the thread that
// enqueues passes.
class RowNumbers {
 public:
  struct Sizes {
    size_t max_rows = 0;      // rows of a block at most
    size_t table_stride = 0;  // pages of a sequence at most
    size_t num_heads = 0;
    size_t partial_rows =
        0;  // partial softmaxes that have room: one per row, head and block of keys
  };

  explicit RowNumbers(const Sizes& sizes);

  // Calls take(&pointer, count, name) for the device memory.
  template <typename Take>
  absl::Status LayOut(const Take& take) {
    return take(&device_, offsets_.size, "row numbers");
  }
  // To be called once the memory is there. `stream` is used from then on. What is staged here must
  // outlive what is on the stream.
  absl::Status Start(const DeviceStream* stream);

  // Waits until the device has fetched the numbers of the block before, then enqueues the copy of
  // this block's. Sets rows, chunks and has_paths of `shape`.
  absl::Status Send(const ForwardPlan& plan, const RowBlock& block, PassShape* shape);

  // In device memory, filled by Send.
  const int32_t* token_ids() const { return device_ + offsets_.token_ids; }  // [rows]
  const int32_t* positions() const { return device_ + offsets_.positions; }  // [rows]
  DeviceRows RowsOf(const AttentionChunk& chunk, bool has_paths) const;

 private:
  // Where each array begins, in entries.
  struct Offsets {
    size_t token_ids = 0;
    size_t positions = 0;
    size_t sequences = 0;
    size_t cache_rows = 0;
    size_t cached_lens = 0;
    size_t path_lens = 0;
    size_t paths = 0;
    size_t tiles = 0;
    size_t page_tables = 0;
    size_t size = 0;
  };

  void FillSegment(const ForwardPlan& plan, size_t sequence, size_t first_row, bool is_tree);
  // Cuts the rows into tiles, and the tiles into chunks.
  void CutChunks(PassShape* shape);
  // The rows from `row` on that make the next tile of `chunk`: those of one sequence, as many as
  // have room. Raises the chunk's max_blocks to what they see.
  size_t NextTile(size_t row, size_t num_rows, size_t most_rows, AttentionChunk* chunk) const;

  Sizes sizes_;
  Offsets offsets_;
  PinnedMemory staging_;
  DeviceEvent fetched_;
  const DeviceStream* stream_ = nullptr;
  int32_t* device_ = nullptr;  // [offsets_.size]
  int32_t* host_ = nullptr;    // the same in staging_
  std::vector<PlanSegment> segments_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CUDA_ROW_NUMBERS_H_
