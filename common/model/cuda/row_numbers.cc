#include "common/model/cuda/row_numbers.h"

#include <algorithm>
#include <utility>

#include "common/status.h"

namespace tandem {
namespace {

// Largest number of rows in a tile. The rows of a tile belong to one sequence and share the keys
// and values that attention reads.
constexpr size_t kTileRows = 16;

}  // namespace

RowNumbers::RowNumbers(const Sizes& sizes) : sizes_(sizes) {
  const size_t rows = sizes.max_rows;
  for (const auto& [offset, count] : {std::pair{&offsets_.token_ids, rows},
                                      {&offsets_.positions, rows},
                                      {&offsets_.sequences, rows},
                                      {&offsets_.cache_rows, rows},
                                      {&offsets_.cached_lens, rows},
                                      {&offsets_.path_lens, rows},
                                      {&offsets_.paths, rows * kMaxTreeRows},
                                      // Each row may be a tile, and each chunk has one more entry.
                                      {&offsets_.tiles, 2 * rows},
                                      {&offsets_.page_tables, rows * sizes.table_stride}}) {
    *offset = offsets_.size;
    offsets_.size += count;
  }
}

absl::Status RowNumbers::Start(const DeviceStream* stream) {
  stream_ = stream;
  TANDEM_ASSIGN_OR_RETURN(staging_, PinnedMemory::Create(offsets_.size * sizeof(int32_t)));
  TANDEM_ASSIGN_OR_RETURN(fetched_, DeviceEvent::Create());
  host_ = static_cast<int32_t*>(staging_.data());
  return absl::OkStatus();
}

absl::Status RowNumbers::Send(const ForwardPlan& plan, const RowBlock& block, PassShape* shape) {
  TANDEM_RETURN_IF_ERROR(fetched_.Wait());
  plan.FindSegments(block.begin, block.end, &segments_);
  shape->rows = block.rows();
  shape->has_paths = !plan.items()[segments_.front().item].parents.empty();
  const auto begin = static_cast<ptrdiff_t>(block.begin);
  std::copy_n(plan.token_ids().begin() + begin, block.rows(), host_ + offsets_.token_ids);
  std::copy_n(plan.positions().begin() + begin, block.rows(), host_ + offsets_.positions);
  for (size_t s = 0; s < segments_.size(); ++s) {
    FillSegment(plan, s, block.begin, shape->has_paths);
  }
  CutChunks(shape);
  const size_t used = offsets_.page_tables + segments_.size() * sizes_.table_stride;
  TANDEM_RETURN_IF_ERROR(stream_->Copy(device_, host_, used * sizeof(int32_t)));
  return fetched_.Record(*stream_);
}

void RowNumbers::FillSegment(const ForwardPlan& plan, size_t sequence, size_t first_row,
                             bool is_tree) {
  const PlanSegment& segment = segments_[sequence];
  const ForwardItem& item = plan.items()[segment.item];
  const auto length = static_cast<int32_t>(item.cache->length());
  int32_t* const table = host_ + offsets_.page_tables + sequence * sizes_.table_stride;
  for (size_t page = 0; page < item.cache->num_pages() && page < sizes_.table_stride; ++page) {
    table[page] = static_cast<int32_t>(item.cache->PageIndex(page));
  }
  for (size_t i = 0; i < segment.rows; ++i) {
    const size_t row = segment.block_row + i;
    const auto row_of_item = static_cast<int32_t>(segment.first_row + i);
    host_[offsets_.sequences + row] = static_cast<int32_t>(sequence);
    host_[offsets_.cache_rows + row] = length + row_of_item;
    if (!is_tree) {
      // The item's rows of earlier blocks are in the cache by now.
      host_[offsets_.cached_lens + row] = length + static_cast<int32_t>(segment.first_row);
      host_[offsets_.path_lens + row] = static_cast<int32_t>(i) + 1;
      continue;
    }
    // A tree is never cut, so the rows of the item are the rows of the segment.
    const int32_t path_len = plan.positions()[first_row + row] - length + 1;
    host_[offsets_.cached_lens + row] = length;
    host_[offsets_.path_lens + row] = path_len;
    int32_t* const path = host_ + offsets_.paths + row * kMaxTreeRows;
    int32_t ancestor = row_of_item;
    for (int32_t depth = path_len; depth-- > 0;) {
      path[depth] = ancestor;
      ancestor = item.parents[static_cast<size_t>(ancestor)];
    }
  }
}

void RowNumbers::CutChunks(PassShape* shape) {
  shape->chunks.clear();
  int32_t* const tiles = host_ + offsets_.tiles;
  size_t num_entries = 0;
  for (size_t row = 0; row < shape->rows;) {
    AttentionChunk chunk = {.first_row = row, .first_tile = num_entries};
    while (row < shape->rows) {
      const size_t tile = NextTile(row, shape->rows, shape->has_paths ? 1 : kTileRows, &chunk);
      if (tile == 0) break;
      tiles[num_entries++] = static_cast<int32_t>(row - chunk.first_row);
      chunk.rows += tile;
      ++chunk.num_tiles;
      row += tile;
    }
    tiles[num_entries++] = static_cast<int32_t>(row - chunk.first_row);
    shape->chunks.push_back(chunk);
  }
}

size_t RowNumbers::NextTile(size_t row, size_t num_rows, size_t most_rows,
                            AttentionChunk* chunk) const {
  const int32_t* const sequences = host_ + offsets_.sequences;
  size_t tile = 0;
  while (row + tile < num_rows && tile < most_rows && sequences[row + tile] == sequences[row]) {
    const int32_t visible =
        host_[offsets_.cached_lens + row + tile] + host_[offsets_.path_lens + row + tile];
    const size_t blocks =
        std::max(chunk->max_blocks, (static_cast<size_t>(visible) + kKeyBlock - 1) / kKeyBlock);
    if ((chunk->rows + tile + 1) * sizes_.num_heads * blocks > sizes_.partial_rows) break;
    chunk->max_blocks = blocks;
    ++tile;
  }
  return tile;
}

DeviceRows RowNumbers::RowsOf(const AttentionChunk& chunk, bool has_paths) const {
  return {.rows = chunk.rows,
          .page_tables = device_ + offsets_.page_tables,
          .table_stride = sizes_.table_stride,
          .sequences = device_ + offsets_.sequences + chunk.first_row,
          .cache_rows = device_ + offsets_.cache_rows + chunk.first_row,
          .cached_lens = device_ + offsets_.cached_lens + chunk.first_row,
          .path_lens = device_ + offsets_.path_lens + chunk.first_row,
          .paths = has_paths ? device_ + offsets_.paths + chunk.first_row * kMaxTreeRows : nullptr,
          .tiles = device_ + offsets_.tiles + chunk.first_tile,
          .num_tiles = chunk.num_tiles};
}

}  // namespace tandem
