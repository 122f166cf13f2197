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
                                      {&offsets_.prefix_lens, rows},
                                      {&offsets_.path_lens, rows},
                                      {&offsets_.paths, rows * kMaxDraftDepth},
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
  const auto begin = static_cast<ptrdiff_t>(block.begin);
  std::copy_n(plan.token_ids().begin() + begin, block.rows(), host_ + offsets_.token_ids);
  std::copy_n(plan.positions().begin() + begin, block.rows(), host_ + offsets_.positions);
  for (size_t s = 0; s < segments_.size(); ++s) FillSegment(plan, s, block.begin);
  CutChunks(shape);
  const size_t used = offsets_.page_tables + segments_.size() * sizes_.table_stride;
  TANDEM_RETURN_IF_ERROR(stream_->Copy(device_, host_, used * sizeof(int32_t)));
  return fetched_.Record(*stream_);
}

void RowNumbers::FillSegment(const ForwardPlan& plan, size_t sequence, size_t first_row) {
  const PlanSegment& segment = segments_[sequence];
  const ForwardItem& item = plan.items()[segment.item];
  const size_t length = item.cache->length();
  int32_t* const table = host_ + offsets_.page_tables + sequence * sizes_.table_stride;
  for (size_t page = 0; page < item.cache->num_pages() && page < sizes_.table_stride; ++page) {
    table[page] = static_cast<int32_t>(item.cache->PageIndex(page));
  }
  // The item's rows of earlier blocks are in the cache by now, so a tree may be cut anywhere.
  for (size_t i = 0; i < segment.rows; ++i) {
    const size_t row = segment.block_row + i;
    const size_t row_of_item = segment.first_row + i;
    const bool is_tree = row_of_item >= item.tree_begin();
    const auto prefix_len =
        static_cast<int32_t>(length + (is_tree ? item.tree_begin() : row_of_item + 1));
    const int32_t path_len = is_tree ? plan.positions()[first_row + row] - prefix_len + 1 : 0;
    host_[offsets_.sequences + row] = static_cast<int32_t>(sequence);
    host_[offsets_.cache_rows + row] = static_cast<int32_t>(length + row_of_item);
    host_[offsets_.prefix_lens + row] = prefix_len;
    host_[offsets_.path_lens + row] = path_len;
    if (!is_tree) continue;
    FillPath(item, row, static_cast<int32_t>(row_of_item - item.tree_begin()), path_len);
  }
}

void RowNumbers::FillPath(const ForwardItem& item, size_t row, int32_t node, int32_t path_len) {
  int32_t* const path = host_ + offsets_.paths + row * kMaxDraftDepth;
  for (int32_t depth = path_len; depth-- > 0;) {
    path[depth] = node;
    node = item.parents[static_cast<size_t>(node)];
  }
}

void RowNumbers::CutChunks(PassShape* shape) {
  shape->chunks.clear();
  int32_t* const tiles = host_ + offsets_.tiles;
  size_t num_entries = 0;
  for (size_t row = 0; row < shape->rows;) {
    AttentionChunk chunk = {.first_row = row, .first_tile = num_entries};
    while (row < shape->rows) {
      const size_t tile = NextTile(row, shape->rows, &chunk);
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

size_t RowNumbers::NextTile(size_t row, size_t num_rows, AttentionChunk* chunk) const {
  const int32_t* const sequences = host_ + offsets_.sequences;
  size_t tile = 0;
  while (row + tile < num_rows && tile < kTileRows && sequences[row + tile] == sequences[row]) {
    const int32_t visible =
        host_[offsets_.prefix_lens + row + tile] + host_[offsets_.path_lens + row + tile];
    const size_t blocks =
        std::max(chunk->max_blocks, (static_cast<size_t>(visible) + kKeyBlock - 1) / kKeyBlock);
    if ((chunk->rows + tile + 1) * sizes_.num_heads * blocks > sizes_.partial_rows) break;
    chunk->max_blocks = blocks;
    ++tile;
  }
  return tile;
}

DeviceRows RowNumbers::RowsOf(const AttentionChunk& chunk) const {
  return {.rows = chunk.rows,
          .page_tables = device_ + offsets_.page_tables,
          .table_stride = sizes_.table_stride,
          .sequences = device_ + offsets_.sequences + chunk.first_row,
          .cache_rows = device_ + offsets_.cache_rows + chunk.first_row,
          .prefix_lens = device_ + offsets_.prefix_lens + chunk.first_row,
          .path_lens = device_ + offsets_.path_lens + chunk.first_row,
          .paths = device_ + offsets_.paths + chunk.first_row * kMaxDraftDepth,
          .tiles = device_ + offsets_.tiles + chunk.first_tile,
          .num_tiles = chunk.num_tiles};
}

}  // namespace tandem
