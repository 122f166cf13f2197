// The values on which the launches of a block of rows depend.
#ifndef TANDEM_COMMON_MODEL_CUDA_PASS_SHAPE_H_
#define TANDEM_COMMON_MODEL_CUDA_PASS_SHAPE_H_

#include <array>
#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem {

// Rows of a block that attend in one call. The room for partial softmaxes limits their number.
struct AttentionChunk {
  size_t first_row = 0;
  size_t rows = 0;
  size_t first_tile = 0;  // index among the block's tiles; tiles count rows from the chunk's first
  size_t num_tiles = 0;
  size_t max_blocks = 0;  // at least the number of key blocks that any row of the chunk sees

  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 misreads what the compiler generates.
  auto operator<=>(const AttentionChunk&) const = default;
};

// The set of a block's rows that want logits.
class RowSet {
 public:
  static constexpr size_t kMaxRows = 2048;

  void Add(size_t row) { words_[row / 64] |= uint64_t{1} << (row % 64); }
  bool Has(size_t row) const { return ((words_[row / 64] >> (row % 64)) & 1) != 0; }
  size_t size() const {
    size_t rows = 0;
    for (const uint64_t word : words_) rows += static_cast<size_t>(std::popcount(word));
    return rows;
  }

  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 misreads what the compiler generates.
  auto operator<=>(const RowSet&) const = default;

 private:
  std::array<uint64_t, kMaxRows / 64> words_ = {};
};

// All values that a walk over the layers takes from the host. Kernels read everything else
// (positions, pages, lengths, ids) from device memory, and RowNumbers puts it there before each
// walk. Blocks of equal shapes therefore have equal launches, and one graph serves them.
struct PassShape {
  size_t rows = 0;
  std::vector<AttentionChunk> chunks;
  // All rows as one chunk, for attention that needs no room. Given if there are several chunks.
  AttentionChunk whole;
  RowSet wants_logits;
  size_t logits_row = 0;               // row at which the block's logits begin
  const int32_t* token_ids = nullptr;  // [rows] in device memory

  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 misreads what the compiler generates.
  auto operator<=>(const PassShape&) const = default;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CUDA_PASS_SHAPE_H_
