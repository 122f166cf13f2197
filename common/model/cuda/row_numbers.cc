#include "common/model/cuda/row_numbers.h"

#include <algorithm>
#include <utility>

#include "common/status.h"

namespace tandem {
namespace {

// Returns the most rows of a tile. Large tiles read keys and values less often, and small ones keep
// more multiprocessors busy.
size_t TileRows(size_t num_rows) {
  constexpr size_t kManyRows = 256;
  return num_rows >= kManyRows ? kMostTileRows : kMostTileRows / 2;
}

}  // namespace

RowNumbers::RowNumbers(const Sizes& sizes) : sizes_(sizes) {
  const size_t rows = sizes.max_rows;
  for (const auto& [offset, count] : {std::pair{&offsets_.token_ids, rows},
                                      {&offsets_.positions, rows},
                                      {&offsets_.sources, rows},
                                      {&offsets_.pool_rows, rows},
                                      {&offsets_.sequences, rows},
                                      {&offsets_.cache_rows, rows},
                                      {&offsets_.prefix_lens, rows},
                                      {&offsets_.path_lens, rows},
                                      {&offsets_.paths, rows * kMaxDraftDepth},
                                      // Each row may be a tile, and each chunk has one more entry.
                                      // If there are several chunks, all rows are one as well.
                                      {&offsets_.tiles, 3 * rows + 1},
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

absl::Status RowNumbers::Send(const Block& block, PassShape* shape) {
  TANDEM_RETURN_IF_ERROR(fetched_.Wait());
  shape->rows = block.token_ids.size();
  std::copy(block.token_ids.begin(), block.token_ids.end(), host_ + offsets_.token_ids);
  std::copy(block.positions.begin(), block.positions.end(), host_ + offsets_.positions);
  std::copy(block.sources.begin(), block.sources.end(), host_ + offsets_.sources);
  size_t first = 0;
  for (size_t i = 0; i < block.sequences.size(); ++i) {
    FillSequence(block.sequences[i], i, first);
    first += block.sequences[i].rows;
  }
  CutChunks(shape);
  const size_t used = offsets_.page_tables + block.sequences.size() * sizes_.table_stride;
  TANDEM_RETURN_IF_ERROR(stream_->Copy(device_, host_, used * sizeof(int32_t)));
  return fetched_.Record(*stream_);
}

void RowNumbers::FillSequence(const Sequence& sequence, size_t index, size_t first) {
  const KvCache& cache = *sequence.cache;
  int32_t* const table = host_ + offsets_.page_tables + index * sizes_.table_stride;
  for (size_t page = 0; page < cache.num_pages() && page < sizes_.table_stride; ++page) {
    table[page] = static_cast<int32_t>(cache.PageIndex(page));
  }
  for (size_t i = 0; i < sequence.rows; ++i) {
    const size_t row = first + i;
    const size_t added = sequence.first_row + i;
    const size_t cache_row = sequence.length + added;
    const bool is_tree = added >= sequence.tree_begin;
    const auto prefix_len =
        static_cast<int32_t>(sequence.length + (is_tree ? sequence.tree_begin : added + 1));
    const int32_t path_len = is_tree ? host_[offsets_.positions + row] - prefix_len + 1 : 0;
    host_[offsets_.sequences + row] = static_cast<int32_t>(index);
    host_[offsets_.cache_rows + row] = static_cast<int32_t>(cache_row);
    host_[offsets_.pool_rows + row] = PoolRow(cache, cache_row);
    host_[offsets_.prefix_lens + row] = prefix_len;
    host_[offsets_.path_lens + row] = path_len;
    if (!is_tree) continue;
    FillPath(sequence, row, static_cast<int32_t>(added - sequence.tree_begin), path_len);
  }
}

void RowNumbers::FillPath(const Sequence& sequence, size_t row, int32_t node, int32_t path_len) {
  int32_t* const path = host_ + offsets_.paths + row * kMaxDraftDepth;
  for (int32_t depth = path_len; depth-- > 0;) {
    path[depth] = node;
    node = sequence.parents[static_cast<size_t>(node)];
  }
}

void RowNumbers::CutChunks(PassShape* shape) {
  shape->chunks.clear();
  shape->whole = {};
  size_t num_entries = 0;
  for (size_t row = 0; row < shape->rows; row += shape->chunks.back().rows) {
    shape->chunks.push_back(CutChunk(row, shape->rows, sizes_.partial_rows, &num_entries));
  }
  if (shape->chunks.size() <= 1) return;
  shape->whole = CutChunk(0, shape->rows, std::numeric_limits<size_t>::max(), &num_entries);
}

AttentionChunk RowNumbers::CutChunk(size_t first_row, size_t num_rows, size_t partial_rows,
                                    size_t* num_entries) {
  int32_t* const tiles = host_ + offsets_.tiles;
  AttentionChunk chunk = {.first_row = first_row, .first_tile = *num_entries};
  for (;;) {
    tiles[(*num_entries)++] = static_cast<int32_t>(chunk.rows);
    const size_t tile = NextTile(first_row + chunk.rows, num_rows, partial_rows, &chunk);
    if (tile == 0) return chunk;
    chunk.rows += tile;
    ++chunk.num_tiles;
  }
}

size_t RowNumbers::NextTile(size_t row, size_t num_rows, size_t partial_rows,
                            AttentionChunk* chunk) const {
  const int32_t* const sequences = host_ + offsets_.sequences;
  size_t tile = 0;
  while (row + tile < num_rows && tile < TileRows(num_rows) &&
         sequences[row + tile] == sequences[row]) {
    const int32_t visible =
        host_[offsets_.prefix_lens + row + tile] + host_[offsets_.path_lens + row + tile];
    const size_t blocks =
        std::max(chunk->max_blocks, (static_cast<size_t>(visible) + kKeyBlock - 1) / kKeyBlock);
    if ((chunk->rows + tile + 1) * sizes_.num_heads * blocks > partial_rows) break;
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
