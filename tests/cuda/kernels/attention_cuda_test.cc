#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "tests/cuda/kernels/bf16_parts.h"
#include "tests/cuda/kernels/device_test.h"

namespace tandem::attention_cuda_test {
namespace {

struct Heads {
  size_t num_heads, num_kv_heads, head_size;
};

// The rows that one sequence has in its cache, and the rows that it adds in a pass. The last
// parents.size() of the added rows are a tree.
struct Sequence {
  size_t cached_len;
  size_t rows;
  std::vector<int32_t> parents = {};

  size_t tree_begin() const { return rows - parents.size(); }
};

constexpr size_t kLayers = 2;  // the kernels get the second layer
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kGap = -7;
constexpr uint16_t kGapBits = 0x4242;

class AttentionCudaTest : public testing::DeviceTest {
 protected:
  // A pass of several sequences, on the device and for the reference. Pages lie anywhere. Places
  // that hold no row are NaN.
  class Pass {
   public:
    Pass(AttentionCudaTest* test, Heads heads, DType dtype, std::vector<Sequence> sequences,
         size_t tile_rows)
        : test_(*test),
          heads_(heads),
          dtype_(dtype),
          sequences_(std::move(sequences)),
          tile_rows_(tile_rows) {
      for (const Sequence& sequence : sequences_) {
        const size_t length = sequence.cached_len + sequence.rows;
        keys_.push_back(Representable(length * RowFloats()));
        values_.push_back(Representable(length * RowFloats()));
        num_rows_ += sequence.rows;
        longest_ = std::max(longest_, length);
      }
      queries_ = test_.Uniform(num_rows_ * QueryStride());
    }

    size_t RowFloats() const { return heads_.num_kv_heads * heads_.head_size; }
    size_t QueryStride() const { return heads_.num_heads * heads_.head_size + 3; }
    // Elements from one row of a BF16 part to the next.
    size_t PartStride() const { return (heads_.num_heads * heads_.head_size + 7) / 8 * 8 + 8; }
    size_t num_rows() const { return num_rows_; }

    void HideRows(size_t count) { hidden_rows_ = count; }
    // Leaves no room for partial softmaxes.
    void LeaveNoRoom() { has_room_ = false; }
    // Leaves room for so many more blocks of positions than the rows see.
    void AddBlocks(size_t count) { more_blocks_ = count; }

    std::vector<float> Run() {
      const float* const out = Enqueue({});
      return test_.Download(out, num_rows_ * QueryStride());
    }

    // Returns the result in parts: [num_parts, rows, PartStride].
    std::vector<uint16_t> RunInParts(int num_parts) {
      const size_t count = static_cast<size_t>(num_parts) * num_rows_ * PartStride();
      uint16_t* const parts = test_.Upload(std::vector<uint16_t>(count, kGapBits));
      const float* const out = Enqueue({.parts = parts,
                                        .stride = PartStride(),
                                        .part_stride = num_rows_ * PartStride(),
                                        .num_parts = num_parts});
      const size_t floats = num_rows_ * QueryStride();
      EXPECT_EQ(test_.Download(out, floats), std::vector<float>(floats, kGap));
      return test_.Download(parts, count);
    }

    // Returns the result as a model that rounds activations has it, in [rows, QueryStride] floats.
    // Whether partial softmaxes were written must be as expected.
    std::vector<float> RunRounded(bool writes_partials) {
      const std::vector<uint16_t> parts = RunInParts(1);
      const bool wrote = has_room_ && !std::isnan(test_.Download(partial_sums_, 1)[0]);
      EXPECT_EQ(wrote, writes_partials);
      std::vector<float> out(num_rows_ * QueryStride(), kGap);
      for (size_t row = 0; row < num_rows_; ++row) {
        for (size_t i = 0; i < heads_.num_heads * heads_.head_size; ++i) {
          out[row * QueryStride() + i] = testing::WidenBf16(parts[row * PartStride() + i]);
        }
      }
      return out;
    }

    // Rounds the queries to BF16, as the matrix units take them.
    void RoundQueries() {
      for (float& query : queries_) query = testing::NearestBf16(query);
    }

    std::vector<float> Reference() {
      std::vector<float> out(num_rows_ * QueryStride(), kGap);
      size_t first = 0;
      for (size_t s = 0; s < sequences_.size(); ++s) {
        const Sequence& sequence = sequences_[s];
        const size_t length = sequence.cached_len + sequence.rows;
        const size_t blocks = (length + kKeyBlock - 1) / kKeyBlock;
        std::vector<float> cache(blocks * 2 * kKeyBlock * RowFloats(), kNan);
        std::vector<float*> pages;
        for (size_t block = 0; block < blocks; ++block)
          pages.push_back(cache.data() + block * 2 * kKeyBlock * RowFloats());
        KvLayer kv{.pages = pages.data(),
                   .num_kv_heads = heads_.num_kv_heads,
                   .head_size = heads_.head_size};
        StoreKv({.kv = kv,
                 .rows = length,
                 .keys = keys_[s].data(),
                 .keys_stride = RowFloats(),
                 .values = values_[s].data(),
                 .values_stride = RowFloats()});
        AttentionReference({.kv = kv,
                            .hidden_rows = hidden_rows_,
                            .cached_len = sequence.cached_len,
                            .rows = sequence.rows,
                            .parents = sequence.parents,
                            .tree_begin = sequence.tree_begin(),
                            .num_heads = heads_.num_heads,
                            .queries = queries_.data() + first * QueryStride(),
                            .queries_stride = QueryStride(),
                            .out = out.data() + first * QueryStride(),
                            .out_stride = QueryStride()});
        first += sequence.rows;
      }
      return out;
    }

    // Returns a pass that has only row `row` of sequence `s`, after the rows that it sees.
    Pass Alone(size_t s, size_t row) const {
      const std::vector<size_t> visible = Visible(sequences_[s], row);
      Pass one(&test_, heads_, dtype_, {{visible.size() - 1, 1}}, 1);
      one.keys_[0] = Gather(keys_[s], visible);
      one.values_[0] = Gather(values_[s], visible);
      size_t first = row;
      for (size_t before = 0; before < s; ++before) first += sequences_[before].rows;
      one.queries_.assign(queries_.begin() + first * QueryStride(),
                          queries_.begin() + (first + 1) * QueryStride());
      return one;
    }

    // Returns a pass with the same tokens in which sequence `s` is a tree.
    Pass WithParents(size_t s, std::vector<int32_t> parents) const {
      Pass other = *this;
      other.sequences_[s].parents = std::move(parents);
      return other;
    }

    // Returns the same pass, cut into tiles of other sizes.
    Pass WithTiles(size_t tile_rows) const {
      Pass other = *this;
      other.tile_rows_ = tile_rows;
      return other;
    }

    // Returns a pass whose last row of the last sequence has keys and values of `value`.
    Pass WithLastRow(float value) const {
      Pass other = *this;
      for (std::vector<float>* rows : {&other.keys_.back(), &other.values_.back()}) {
        std::fill(rows->end() - static_cast<ptrdiff_t>(RowFloats()), rows->end(), value);
      }
      return other;
    }

   private:
    // Enqueues the pass. Returns where its floats are, on the device.
    const float* Enqueue(Bf16Rows out_bf16) {
      DeviceKv kv;
      const int32_t* const page_tables = MakePool(&kv);
      const Rows rows = MakeRows();
      Store(kv, page_tables, rows.cached);
      Store(kv, page_tables, rows.computed);

      DeviceAttentionArgs args;
      args.kv = kv;
      args.rows.rows = num_rows_;
      args.rows.page_tables = page_tables;
      args.rows.table_stride = MaxBlocks();
      args.rows.sequences = test_.Upload(rows.computed.sequences);
      args.rows.prefix_lens = test_.Upload(rows.prefix_lens);
      args.rows.path_lens = test_.Upload(rows.path_lens);
      if (rows.trees) args.rows.paths = test_.Upload(rows.paths);
      args.rows.tiles = test_.Upload(rows.tiles);
      args.rows.num_tiles = rows.tiles.size() - 1;
      args.num_heads = heads_.num_heads;
      args.hidden_rows = hidden_rows_;
      args.scale = 1 / std::sqrt(static_cast<float>(heads_.head_size));
      args.queries = test_.Upload(queries_);
      args.queries_stride = QueryStride();
      // A graph has more blocks than the rows see.
      args.max_blocks = MaxBlocks() + more_blocks_;
      if (has_room_) {
        const size_t partials = num_rows_ * heads_.num_heads * args.max_blocks;
        args.partial_values = test_.Upload(std::vector<float>(partials * heads_.head_size, kNan));
        args.partial_maxima = test_.Upload(std::vector<float>(partials, kNan));
        args.partial_sums = test_.Upload(std::vector<float>(partials, kNan));
      }
      partial_sums_ = args.partial_sums;
      args.out = test_.Upload(std::vector<float>(num_rows_ * QueryStride(), kGap));
      args.out_stride = QueryStride();
      args.out_bf16 = out_bf16;
      const absl::Status status = Attention(args, test_.stream());
      EXPECT_TRUE(status.ok()) << status;
      return args.out;
    }

    // Rows of keys and values, and where they belong.
    struct KvRows {
      std::vector<int32_t> sequences;
      std::vector<int32_t> places;  // in the sequence
      std::vector<float> keys;
      std::vector<float> values;

      void Append(size_t sequence, size_t place) {
        sequences.push_back(static_cast<int32_t>(sequence));
        places.push_back(static_cast<int32_t>(place));
      }
    };
    struct Rows {
      KvRows cached;    // those that another pass stored
      KvRows computed;  // those of this pass
      std::vector<int32_t> prefix_lens, path_lens, paths;
      std::vector<int32_t> tiles = {0};
      bool trees = false;
    };

    // Returns the number of blocks of the longest sequence.
    size_t MaxBlocks() const { return (longest_ + kKeyBlock - 1) / kKeyBlock; }

    // Fills the pool with pages in random order. Returns the page tables on the device.
    const int32_t* MakePool(DeviceKv* kv) {
      const size_t page_floats = kLayers * 2 * kKeyBlock * RowFloats();
      std::vector<int32_t> tables(sequences_.size() * MaxBlocks());
      std::iota(tables.begin(), tables.end(), 0);
      std::shuffle(tables.begin(), tables.end(), test_.random_);
      kv->dtype = dtype_;
      kv->page_stride = page_floats;
      kv->layer_offset = page_floats / kLayers;
      kv->num_kv_heads = heads_.num_kv_heads;
      kv->head_size = heads_.head_size;
      // A value with all bits set is NaN in every type.
      kv->pool =
          test_.Upload(std::vector<uint8_t>(tables.size() * page_floats * SizeOf(dtype_), 0xFF));
      return test_.Upload(tables);
    }

    // Returns the rows of the tree that the row sees, the row itself last.
    static std::vector<int32_t> Path(const Sequence& sequence, size_t row) {
      std::vector<int32_t> path;
      if (row < sequence.tree_begin()) return path;
      for (auto i = static_cast<int32_t>(row - sequence.tree_begin()); i >= 0;
           i = sequence.parents[i]) {
        path.insert(path.begin(), i);
      }
      return path;
    }

    // Returns the number of rows of the sequence that all its later rows see, or the row itself.
    static size_t PrefixLen(const Sequence& sequence, size_t row) {
      return sequence.cached_len + std::min(row + 1, sequence.tree_begin());
    }

    // Returns the rows of the sequence that the row sees, in the order of their positions.
    static std::vector<size_t> Visible(const Sequence& sequence, size_t row) {
      std::vector<size_t> visible(PrefixLen(sequence, row));
      std::iota(visible.begin(), visible.end(), 0);
      for (const int32_t node : Path(sequence, row)) {
        visible.push_back(sequence.cached_len + sequence.tree_begin() + static_cast<size_t>(node));
      }
      return visible;
    }

    std::vector<float> Gather(const std::vector<float>& from,
                              const std::vector<size_t>& rows) const {
      std::vector<float> gathered;
      for (const size_t row : rows) {
        const auto begin = from.begin() + static_cast<ptrdiff_t>(row * RowFloats());
        gathered.insert(gathered.end(), begin, begin + static_cast<ptrdiff_t>(RowFloats()));
      }
      return gathered;
    }

    Rows MakeRows() const {
      Rows rows;
      for (size_t s = 0; s < sequences_.size(); ++s) {
        const Sequence& sequence = sequences_[s];
        const auto cut = static_cast<ptrdiff_t>(sequence.cached_len * RowFloats());
        const auto split = [cut](const std::vector<float>& all, std::vector<float>* cached,
                                 std::vector<float>* computed) {
          cached->insert(cached->end(), all.begin(), all.begin() + cut);
          computed->insert(computed->end(), all.begin() + cut, all.end());
        };
        split(keys_[s], &rows.cached.keys, &rows.computed.keys);
        split(values_[s], &rows.cached.values, &rows.computed.values);
        for (size_t row = 0; row < sequence.cached_len; ++row) rows.cached.Append(s, row);
        rows.trees = rows.trees || !sequence.parents.empty();
        for (size_t row = 0; row < sequence.rows; ++row) {
          rows.computed.Append(s, sequence.cached_len + row);
          rows.prefix_lens.push_back(static_cast<int32_t>(PrefixLen(sequence, row)));
          std::vector<int32_t> path = Path(sequence, row);
          EXPECT_LE(path.size(), kMaxDraftDepth);
          rows.path_lens.push_back(static_cast<int32_t>(path.size()));
          path.resize(kMaxDraftDepth, -1);
          rows.paths.insert(rows.paths.end(), path.begin(), path.end());
          const bool ends = row + 1 == sequence.rows || (row + 1) % tile_rows_ == 0;
          if (ends) rows.tiles.push_back(static_cast<int32_t>(rows.computed.places.size()));
        }
      }
      return rows;
    }

    // Stores rows as they are: a position whose angles are zero turns nothing.
    void Store(const DeviceKv& kv, const int32_t* page_tables, const KvRows& rows) {
      std::vector<float> table(heads_.head_size);
      std::fill_n(table.begin(), heads_.head_size / 2, 1.0f);
      std::vector<float> qkv;
      for (size_t row = 0; row < rows.places.size(); ++row) {
        for (const std::vector<float>* from : {&rows.keys, &rows.values}) {
          const std::span<const float> of_row(from->data() + row * RowFloats(), RowFloats());
          qkv.insert(qkv.end(), of_row.begin(), of_row.end());
        }
      }
      DeviceRopeAndStoreArgs args;
      args.kv = kv;
      args.rows.rows = rows.places.size();
      args.rows.page_tables = page_tables;
      args.rows.table_stride = MaxBlocks();
      args.rows.sequences = test_.Upload(rows.sequences);
      args.rows.cache_rows = test_.Upload(rows.places);
      args.positions = test_.Upload(std::vector<int32_t>(rows.places.size(), 0));
      args.table = test_.Upload(table);
      args.qkv = test_.Upload(qkv);
      args.qkv_stride = 2 * RowFloats();
      const absl::Status status = RopeAndStoreKv(args, test_.stream());
      EXPECT_TRUE(status.ok()) << status;
    }

    // Returns random values that every type can hold.
    std::vector<float> Representable(size_t count) {
      std::vector<float> values = test_.Uniform(count);
      for (float& value : values) value = std::round(value * 64) / 64;
      return values;
    }

    AttentionCudaTest& test_;
    Heads heads_;
    DType dtype_;
    std::vector<Sequence> sequences_;
    size_t tile_rows_;
    std::vector<std::vector<float>> keys_;
    std::vector<std::vector<float>> values_;
    std::vector<float> queries_;
    size_t num_rows_ = 0;
    size_t hidden_rows_ = 0;  // first cache rows that nobody sees
    size_t longest_ = 0;
    size_t more_blocks_ = 1;
    bool has_room_ = true;
    const float* partial_sums_ = nullptr;  // those of the latest run, on the device
  };

  static std::vector<int32_t> Chain(size_t size) {
    std::vector<int32_t> parents(size);
    std::iota(parents.begin(), parents.end(), -1);
    return parents;
  }
};

const std::vector<int32_t> kTree = {-1, 0, 0, 1, 2, -1};

TEST_F(AttentionCudaTest, EqualsTheReferenceToRounding) {
  const std::vector<Sequence> sequences = {{0, 3}, {63, 1}, {64, 2}, {130, 7}};
  for (const Heads heads : {Heads{1, 1, 2}, {3, 1, 14}, {4, 2, 32}, {6, 2, 64}, {3, 1, 128}}) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      Pass pass(this, heads, dtype, sequences, 4);
      const std::vector<float> got = pass.Run();
      const std::vector<float> want = pass.Reference();
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], want[i], 3e-6) << heads.head_size << " " << Name(dtype) << " at " << i;
    }
  }
}

// Returns a tree of `size` rows in which most rows have several children, and no path is too long.
std::vector<int32_t> Tree(size_t size) {
  std::vector<int32_t> parents;
  std::vector<size_t> depths;
  std::mt19937_64 random(size);
  for (size_t i = 0; i < size; ++i) {
    auto parent = static_cast<int32_t>(i) - 1;
    while (parent >= 0 && (random() % 3 == 0 || depths[parent] == kMaxDraftDepth)) {
      parent = static_cast<int32_t>(random() % (i + 1)) - 1;
    }
    parents.push_back(parent);
    depths.push_back(parent < 0 ? 1 : depths[parent] + 1);
  }
  return parents;
}

TEST_F(AttentionCudaTest, ATreeEqualsTheReference) {
  const std::vector<Sequence> sequences = {
      {61, 6, kTree}, {10, 2, {-1, -1}}, {0, 5, {-1, 0}}, {55, 68, Tree(64)}, {128, 40, Tree(40)}};
  for (const Heads heads : {Heads{4, 2, 32}, {3, 1, 14}, {2, 2, 64}}) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const size_t tile_rows : {1, 5, 16}) {
        Pass pass(this, heads, dtype, sequences, tile_rows);
        const std::vector<float> got = pass.Run();
        const std::vector<float> want = pass.Reference();
        for (size_t i = 0; i < got.size(); ++i)
          ASSERT_NEAR(got[i], want[i], 3e-6)
              << heads.head_size << " " << Name(dtype) << " at " << i;
      }
    }
  }
}

TEST_F(AttentionCudaTest, SixteenRowsAtOnceEqualTheReferenceAsAChainAndAsATree) {
  std::vector<int32_t> tree;  // each node has two children
  for (int32_t i = 0; i < 16; ++i) tree.push_back((i + 1) / 2 - 1);
  for (const Heads heads : {Heads{4, 2, 32}, {6, 2, 64}, {3, 1, 128}}) {
    for (const std::vector<int32_t>& parents : {std::vector<int32_t>(), tree}) {
      Pass pass(this, heads, DType::kBF16, {{130, 16, parents}}, 16);
      const std::vector<float> got = pass.Run();
      const std::vector<float> want = pass.Reference();
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], want[i], 3e-6) << heads.head_size << " at " << i;
    }
  }
}

// A warp computes one, two, or four pairs of a row and a head at once, and up to four blocks of
// threads share the pairs of a tile. The sizes of the group and of the tiles decide it.
TEST_F(AttentionCudaTest, EveryHeadSizeAndGroupEqualsTheReference) {
  const std::vector<Sequence> sequences = {{55, 20, Tree(18)}, {0, 16}, {127, 2}, {150, 1}};
  for (const size_t head_size : {64, 128, 256, 72}) {
    for (const size_t group : {1, 3, 4, 8}) {
      Pass pass(this, {2 * group, 2, head_size}, DType::kBF16, sequences, 16);
      const std::vector<float> got = pass.Run();
      const std::vector<float> want = pass.Reference();
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], want[i], 3e-6) << head_size << ", group " << group << " at " << i;
    }
  }
}

TEST_F(AttentionCudaTest, ManyBlocksOfPositionsEqualTheReference) {
  for (const Heads heads : {Heads{2, 1, 8}, {1, 1, 14}}) {
    for (const size_t cached_len : {500, 510, 575, 1100}) {
      Pass pass(this, heads, DType::kF32, {{cached_len, 3}}, 16);
      const std::vector<float> got = pass.Run();
      const std::vector<float> want = pass.Reference();
      for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 3e-6) << "at " << i;
    }
  }
}

TEST_F(AttentionCudaTest, BF16PartsAreThoseOfTheFloats) {
  for (const Heads heads : {Heads{4, 2, 64}, {3, 1, 14}, {1, 1, 256}}) {
    Pass pass(this, heads, DType::kBF16, {{60, 6, kTree}, {600, 2}, {0, 1}}, 4);
    const std::vector<float> floats = pass.Run();
    const size_t size = heads.num_heads * heads.head_size;
    for (const int num_parts : {1, kMostBf16Parts}) {
      if (num_parts == 1 && heads.head_size == 64) continue;  // The matrix units round more.
      const std::vector<uint16_t> got = pass.RunInParts(num_parts);
      for (size_t row = 0; row < pass.num_rows(); ++row) {
        const std::vector<uint16_t> want = testing::Bf16PartsOf(
            std::span(floats).subspan(row * pass.QueryStride(), size), num_parts);
        for (size_t part = 0; part < static_cast<size_t>(num_parts); ++part) {
          const size_t begin = (part * pass.num_rows() + row) * pass.PartStride();
          for (size_t i = 0; i < pass.PartStride(); ++i) {
            ASSERT_EQ(got[begin + i], i < size ? want[part * size + i] : kGapBits)
                << "row " << row << ", part " << part << ", at " << i;
          }
        }
      }
    }
  }
}

TEST_F(AttentionCudaTest, ARowDecodedAloneHasTheBitsItHasInABatch) {
  // The second batch mixes a prompt, a chain, a tree after rows of a chain, and a tree.
  const std::vector<Sequence> few = {{0, 5}, {60, 9}, {200, 2}};
  const std::vector<Sequence> many = {
      {0, 37}, {60, 9}, {50, 70, Tree(64)}, {62, 6, kTree}, {190, 1}};
  const std::vector<Sequence> one = {{61, 18, Tree(16)}};
  struct Batch {
    Heads heads;
    std::vector<Sequence> sequences;
    size_t tile_rows;
  };
  const Batch batches[] = {{{6, 2, 64}, few, 3},   {{6, 2, 64}, many, 16}, {{3, 1, 14}, few, 3},
                           {{3, 1, 14}, many, 16}, {{8, 1, 64}, one, 16},  {{4, 1, 128}, one, 16},
                           {{1, 1, 256}, one, 16}};
  for (const auto& [heads, sequences, tile_rows] : batches) {
    Pass pass(this, heads, DType::kBF16, sequences, tile_rows);
    const std::vector<float> together = pass.Run();
    size_t first = 0;
    for (size_t s = 0; s < sequences.size(); ++s) {
      for (size_t row = 0; row < sequences[s].rows; ++row, ++first) {
        const std::vector<float> alone = pass.Alone(s, row).Run();
        for (size_t i = 0; i < heads.num_heads * heads.head_size; ++i) {
          ASSERT_EQ(std::bit_cast<uint32_t>(alone[i]),
                    std::bit_cast<uint32_t>(together[first * pass.QueryStride() + i]))
              << "head size " << heads.head_size << ", sequence " << s << ", row " << row << ", at "
              << i;
        }
      }
    }
  }
}

// A row that sees a part of a block must not be touched by what the other rows of its tile see.
TEST_F(AttentionCudaTest, WhatARowDoesNotSeeMayBeInfinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  Pass pass(this, {4, 1, 64}, DType::kBF16, {{60, 9}}, 16);
  const std::vector<float> want = pass.Run();
  const std::vector<float> got = pass.WithLastRow(infinity).Run();
  for (size_t i = 0; i < 8 * pass.QueryStride(); ++i) ASSERT_EQ(got[i], want[i]) << "at " << i;
}

TEST_F(AttentionCudaTest, NobodySeesHiddenRows) {
  // Rows of the first block alone, of later ones, and of a tree that begins in the first block.
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Pass pass(this, {4, 2, 64}, dtype, {{2, 3}, {130, 4}, {10, 5, {-1, 0, 0, 1, 2}}}, 17);
    const std::vector<float> seen = pass.Run();
    pass.HideRows(2);
    const std::vector<float> got = pass.Run();
    const std::vector<float> want = pass.Reference();
    double furthest = 0;  // from what the rows give if they are seen
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], 3e-6) << Name(dtype) << " at " << i;
      furthest = std::max(furthest, std::abs(double{got[i]} - seen[i]));
    }
    EXPECT_GT(furthest, 0.05);
  }
}

TEST_F(AttentionCudaTest, ATreeThatIsAChainHasTheBitsOfTheChain) {
  Pass chain(this, {4, 2, 32}, DType::kF32, {{62, 5}}, 5);
  EXPECT_EQ(chain.WithParents(0, {-1, 0, 1, 2, 3}).Run(), chain.Run());
  EXPECT_EQ(chain.WithParents(0, {-1, 0}).Run(), chain.Run());
}

// ---------------------------------------------------------------- on matrix units

// Few blocks of positions are merged in registers. More are split among thread blocks.
constexpr size_t kBlocksThatSplit = 12;

// With rounded queries, what differs from the reference is that the exponentials are rounded, each
// by at most 2^-9 of itself. An output is an average of values within [-1, 1], so that it moves by
// at most 2^-8. It is then rounded itself.
TEST_F(AttentionCudaTest, RoundedActivationsGiveTheReferenceToRounding) {
  const std::vector<Sequence> sequences = {
      {55, 20, Tree(18)}, {0, 17}, {127, 2}, {150, 1}, {63, 1}, {64, 2}, {61, 6, kTree}};
  for (const Heads heads : {Heads{6, 2, 64}, {1, 1, 64}, {3, 1, 128}, {18, 1, 128}}) {
    for (const size_t more_blocks : {size_t{1}, kBlocksThatSplit}) {
      Pass pass(this, heads, DType::kBF16, sequences, 16);
      pass.RoundQueries();
      pass.AddBlocks(more_blocks);
      const std::vector<float> got = pass.RunRounded(more_blocks == kBlocksThatSplit);
      const std::vector<float> want = pass.Reference();
      double sum = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], want[i], 0x1p-8 + 0x1p-9 * std::abs(want[i]) + 3e-6)
            << heads.head_size << " at " << i;
        sum += std::abs(double{got[i]} - want[i]);
      }
      // Roundings up and down nearly cancel.
      EXPECT_LT(sum / static_cast<double>(got.size()), 0x1p-11);
    }
  }
}

TEST_F(AttentionCudaTest, ARowOfRoundedActivationsHasTheSameBitsAloneAndInABatch) {
  const std::vector<Sequence> many = {{0, 37},        {60, 9},  {50, 34, Tree(28)},
                                      {62, 6, kTree}, {127, 1}, {190, 2}};
  const std::vector<Sequence> one = {{61, 18, Tree(16)}, {300, 3}};
  struct Batch {
    Heads heads;
    std::vector<Sequence> sequences;
    size_t tile_rows;
    size_t more_blocks;
  };
  const Batch batches[] = {{{6, 2, 64}, many, 32, 1},
                           {{6, 2, 64}, many, 16, kBlocksThatSplit},
                           {{3, 1, 128}, one, 16, kBlocksThatSplit},
                           {{4, 1, 128}, {{61, 18, Tree(16)}}, 5, 1}};
  for (const auto& [heads, sequences, tile_rows, more_blocks] : batches) {
    Pass pass(this, heads, DType::kBF16, sequences, tile_rows);
    pass.AddBlocks(more_blocks);
    const std::vector<float> together = pass.RunRounded(more_blocks == kBlocksThatSplit);
    size_t first = 0;
    for (size_t s = 0; s < sequences.size(); ++s) {
      for (size_t row = 0; row < sequences[s].rows; ++row, ++first) {
        Pass alone = pass.Alone(s, row);
        const bool is_split = row % 2 == 0 || sequences[s].cached_len > 200;
        alone.AddBlocks(is_split ? kBlocksThatSplit : 0);
        const std::vector<float> got = alone.RunRounded(is_split);
        for (size_t i = 0; i < heads.num_heads * heads.head_size; ++i) {
          ASSERT_EQ(std::bit_cast<uint32_t>(got[i]),
                    std::bit_cast<uint32_t>(together[first * pass.QueryStride() + i]))
              << "head size " << heads.head_size << ", sequence " << s << ", row " << row << ", at "
              << i;
        }
      }
    }
  }
}

TEST_F(AttentionCudaTest, PiecesAndTreesOfRoundedActivationsHaveTheBitsOfTheChain) {
  for (const Heads heads : {Heads{4, 2, 64}, {3, 1, 128}}) {
    for (const auto& [more_blocks, tile_rows] : {std::pair<size_t, size_t>{0, 16},
                                                 {0, 3},
                                                 {kBlocksThatSplit, 16},
                                                 {kBlocksThatSplit, 7}}) {
      Pass chain(this, heads, DType::kBF16, {{55, 16}, {126, 5}}, 16);
      const std::vector<float> want = chain.RunRounded(false);
      for (const std::vector<int32_t>& parents : {Chain(0), Chain(1), Chain(16)}) {
        Pass pass = chain.WithParents(0, parents).WithTiles(tile_rows);
        pass.AddBlocks(more_blocks);
        EXPECT_EQ(pass.RunRounded(more_blocks > 0), want) << parents.size();
      }
    }
  }
}

// The result is rounded to BF16, which hides most differences of F32 sums. Of so many elements, one
// would be on the other side of a rounding.
TEST_F(AttentionCudaTest, MergedAndSplitRoundedActivationsHaveTheSameBits) {
  for (const auto& [heads, sequence] :
       {std::pair<Heads, Sequence>{{64, 1, 64}, {150, 48}}, {{3, 1, 128}, {1000, 2}}}) {
    Pass pass(this, heads, DType::kBF16, {sequence}, 16);
    pass.AddBlocks(20);
    const std::vector<float> split = pass.RunRounded(true);
    pass.LeaveNoRoom();
    EXPECT_EQ(pass.RunRounded(false), split);
  }
}

// As a weight of 0 times infinity is NaN, a value that a row does not see must not reach its sums.
TEST_F(AttentionCudaTest, WhatARowOfRoundedActivationsDoesNotSeeMayBeInfinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  const Sequence chain = {60, 9};
  const Sequence tree = {60, 9, {-1, 0, 1, -1, 3, 4, 5, 6, 0}};
  for (const Sequence& sequence : {chain, tree}) {
    for (const size_t more_blocks : {size_t{1}, kBlocksThatSplit}) {
      Pass pass(this, {6, 1, 64}, DType::kBF16, {sequence}, 16);
      pass.AddBlocks(more_blocks);
      const bool is_split = more_blocks == kBlocksThatSplit;
      const std::vector<float> want = pass.RunRounded(is_split);
      for (const float value : {infinity, 0x1p120f}) {
        const std::vector<float> got = pass.WithLastRow(value).RunRounded(is_split);
        for (size_t i = 0; i < 8 * pass.QueryStride(); ++i)
          ASSERT_EQ(got[i], want[i]) << "at " << i;
      }
    }
  }
}

TEST_F(AttentionCudaTest, NoRowOfRoundedActivationsSeesHiddenRows) {
  for (const Heads heads : {Heads{4, 2, 64}, {2, 1, 128}}) {
    for (const size_t more_blocks : {size_t{1}, kBlocksThatSplit}) {
      Pass pass(this, heads, DType::kBF16, {{2, 3}, {130, 4}, {10, 5, {-1, 0, 0, 1, 2}}}, 16);
      pass.RoundQueries();
      pass.AddBlocks(more_blocks);
      pass.HideRows(2);
      const std::vector<float> want = pass.Reference();
      const std::vector<float> got = pass.RunRounded(more_blocks == kBlocksThatSplit);
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_NEAR(got[i], want[i], 0x1p-8 + 0x1p-9 * std::abs(want[i]) + 3e-6) << "at " << i;
      }
    }
  }
}

TEST_F(AttentionCudaTest, CacheRowsAreRoundedToTheNearestTiesToEven) {
  // 1 + 2^-8 and 1 + 3 * 2^-8 lie halfway between two BF16 numbers. Infinity must not become NaN.
  const std::vector<float> given = {
      1 + 0x1p-8f, 1 + 3 * 0x1p-8f, 1 + 0x1p-8f + 0x1p-20f, -1.5f, 3.3895e38f, 0x1p-130f, 0.0f,
      -0.0f};
  const std::vector<float> want = {
      1, 1 + 4 * 0x1p-8f, 1 + 2 * 0x1p-8f, -1.5f, 3.3895314e38f, 0x1p-130f, 0.0f, -0.0f};
  std::vector<float> qkv = given;  // the keys, and then the same numbers as values
  qkv.insert(qkv.end(), given.begin(), given.end());
  DeviceRopeAndStoreArgs args;
  args.kv.dtype = DType::kBF16;
  args.kv.page_stride = 2 * kKeyBlock * given.size();
  args.kv.num_kv_heads = 1;
  args.kv.head_size = given.size();
  auto* const pool = Upload(std::vector<uint16_t>(args.kv.page_stride));
  args.kv.pool = pool;
  args.rows.rows = 1;
  args.rows.page_tables = Upload(std::vector<int32_t>{0});
  args.rows.table_stride = 1;
  args.rows.sequences = Upload(std::vector<int32_t>{0});
  args.rows.cache_rows = Upload(std::vector<int32_t>{2});
  args.positions = Upload(std::vector<int32_t>{0});
  args.table = Upload(std::vector<float>{1, 1, 1, 1, 0, 0, 0, 0});
  args.qkv = Upload(qkv);
  ASSERT_TRUE(RopeAndStoreKv(args, stream()).ok());
  const std::vector<uint16_t> stored = Download(pool, args.kv.page_stride);
  for (const size_t begin : {size_t{0}, args.kv.ValueOffset()}) {
    for (size_t i = 0; i < given.size(); ++i) {
      const float got = testing::WidenBf16(stored[begin + 2 * given.size() + i]);
      EXPECT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(want[i])) << given[i];
    }
  }
}

}  // namespace
}  // namespace tandem::attention_cuda_test
