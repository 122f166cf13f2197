#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/thread_pool.h"
#include "tests/kernels/every_target.h"

namespace tandem {
namespace {

using testing::SameBits;
using testing::UniformFloats;

struct Shape {
  size_t num_heads;
  size_t num_kv_heads;
  size_t head_size;
  size_t cached_len;
  size_t rows;
  std::vector<int32_t> parents = {};  // the last rows are a tree
  size_t hidden_rows = 0;
};

std::string Text(const Shape& shape) {
  return std::to_string(shape.num_heads) + "/" + std::to_string(shape.num_kv_heads) + " heads of " +
         std::to_string(shape.head_size) + ", " + std::to_string(shape.rows) + " rows after " +
         std::to_string(shape.cached_len);
}

enum class PageOrder { kAscending, kDescending };

// Queries, and a cache with cached_len + rows rows, which is the second of three layers. Nothing is
// aligned, and rows have gaps. Places of the cache that hold no row are NaN, so that a read of them
// shows in the results.
class Sequence {
 public:
  explicit Sequence(const Shape& shape, uint64_t seed = 1, PageOrder order = PageOrder::kDescending)
      : shape_(shape) {
    const size_t rows = shape.cached_len + shape.rows;
    const size_t num_blocks = (rows + kKeyBlock - 1) / kKeyBlock + 1;
    const size_t kv_floats = shape.num_kv_heads * shape.head_size;
    const size_t layer_floats = 2 * kKeyBlock * kv_floats;
    cache_.assign(1 + num_blocks * 3 * layer_floats, std::numeric_limits<float>::quiet_NaN());
    for (size_t block = 0; block < num_blocks; ++block) {
      const size_t place = order == PageOrder::kAscending ? block : num_blocks - 1 - block;
      pages_.push_back(cache_.data() + 1 + place * 3 * layer_floats);
    }
    kv_ = {.pages = pages_.data(),
           .page_offset = layer_floats,
           .num_kv_heads = shape.num_kv_heads,
           .head_size = shape.head_size};
    keys_ = UniformFloats(rows * (kv_floats + 3), seed);
    values_ = UniformFloats(rows * (kv_floats + 5), seed + 1);
    StoreKv({.kv = kv_,
             .first_row = 0,
             .rows = rows,
             .keys = keys_.data(),
             .keys_stride = kv_floats + 3,
             .values = values_.data(),
             .values_stride = kv_floats + 5});
    stride_ = shape.num_heads * shape.head_size + 7;
    queries_ = UniformFloats(1 + shape.rows * stride_, seed + 2);
    out_.assign(1 + shape.rows * stride_, -7.0f);
  }

  // Returns the arguments for rows [first, first + rows) of the pass.
  AttentionArgs Args(std::vector<float>& out, size_t first, size_t rows) {
    return {.kv = kv_,
            .hidden_rows = shape_.hidden_rows,
            .cached_len = shape_.cached_len,
            .first_row = first,
            .rows = rows,
            .parents = shape_.parents,
            .tree_begin = shape_.rows - shape_.parents.size(),
            .num_heads = shape_.num_heads,
            .queries = queries_.data() + 1 + first * stride_,
            .queries_stride = stride_,
            .out = out.data() + 1 + first * stride_,
            .out_stride = stride_};
  }

  std::vector<float> Run(ThreadPool& pool) {
    std::vector<float> out = out_;
    const AttentionArgs args = Args(out, 0, shape_.rows);
    Attention({&args, 1}, pool);
    return out;
  }

  std::vector<float> Reference() {
    std::vector<float> out = out_;
    AttentionReference(Args(out, 0, shape_.rows));
    return out;
  }

  const Shape& shape() const { return shape_; }
  const KvLayer& kv() const { return kv_; }
  std::vector<float>& queries() { return queries_; }
  const std::vector<float>& keys() const { return keys_; }
  const std::vector<float>& values() const { return values_; }
  const std::vector<float>& initial_out() const { return out_; }

 private:
  Shape shape_;
  std::vector<float> cache_;
  std::vector<float*> pages_;
  KvLayer kv_;
  std::vector<float> keys_;
  std::vector<float> values_;
  size_t stride_;
  std::vector<float> queries_;
  std::vector<float> out_;
};

const std::vector<Shape>& Shapes() {
  static const std::vector<Shape> shapes = {
      {1, 1, 2, 0, 1},
      {4, 2, 8, 0, 3},
      {4, 2, 8, 63, 1},
      {4, 2, 8, 64, 1},
      {4, 2, 8, 65, 5},
      {6, 2, 6, 10, 70},
      {5, 5, 10, 0, 130},
      {3, 1, 14, 127, 2},
      {7, 1, 20, 60, 9},
      {8, 8, 16, 100, 17},
      {32, 8, 64, 200, 1},
      {32, 8, 64, 300, 9},
      {8, 2, 64, 0, 150},
      {24, 8, 128, 70, 5},
      {4, 4, 80, 129, 33},
      {2, 1, 96, 5, 2},
      {2, 2, 256, 64, 3},
      {71, 1, 4, 30, 4},
      {4, 2, 8, 0, 6, {-1, 0, 0, 1, 2, -1}},
      {4, 2, 64, 61, 8, {-1, 0, 1, 2, 3, 0, 5, -1}},
      {3, 3, 10, 130, 5, {-1, -1, -1, 0, 2}},
      {4, 2, 8, 1, 3, {}, 1},
      {5, 5, 10, 20, 130, {}, 1},
      {4, 2, 64, 61, 8, {-1, 0, 1, 2, 3, 0, 5, -1}, 1},
      {4, 2, 8, 35, 2, {}, 33},
      {3, 3, 10, 130, 5, {-1, -1, -1, 0, 2}, 17},
  };
  return shapes;
}

class AttentionTest : public testing::EveryTargetTest {};

TEST_P(AttentionTest, EqualsTheReferenceToRounding) {
  ThreadPool pool(2);
  for (const Shape& shape : Shapes()) {
    Sequence sequence(shape);
    const std::vector<float> got = sequence.Run(pool);
    const std::vector<float> want = sequence.Reference();
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], 3e-6) << Text(shape) << ", at " << i;
    }
  }
}

TEST_P(AttentionTest, HiddenRowsChangeNothing) {
  ThreadPool pool(1);
  for (const Shape& shape : Shapes()) {
    if (shape.hidden_rows == 0) continue;
    Sequence sequence(shape);
    const std::vector<float> before = sequence.Run(pool);
    const std::vector<float> other(shape.hidden_rows * shape.num_kv_heads * shape.head_size, 9.0f);
    const size_t stride = shape.num_kv_heads * shape.head_size;
    StoreKv({.kv = sequence.kv(),
             .first_row = 0,
             .rows = shape.hidden_rows,
             .keys = other.data(),
             .keys_stride = stride,
             .values = other.data(),
             .values_stride = stride});
    const std::vector<float> after = sequence.Run(pool);
    EXPECT_TRUE(SameBits(before.data(), after.data(), before.size())) << Text(shape);
    Shape seen = shape;
    seen.hidden_rows = 0;
    const std::vector<float> differs = Sequence(seen).Run(pool);
    EXPECT_FALSE(SameBits(before.data(), differs.data(), before.size())) << Text(shape);
  }
}

TEST_P(AttentionTest, ARowHasTheSameBitsAloneAndAmongOthers) {
  ThreadPool one(1);
  ThreadPool two(2);
  for (const Shape& shape : Shapes()) {
    Sequence sequence(shape);
    const std::vector<float> together = sequence.Run(two);
    std::vector<float> alone = sequence.initial_out();
    for (size_t row = 0; row < shape.rows; ++row) {
      const AttentionArgs args = sequence.Args(alone, row, 1);
      Attention({&args, 1}, one);
    }
    EXPECT_TRUE(SameBits(alone.data(), together.data(), alone.size())) << Text(shape);
  }
}

TEST_P(AttentionTest, OtherSequencesChangeNothing) {
  ThreadPool pool(2);
  std::vector<Sequence> sequences;
  for (const Shape& shape : Shapes()) sequences.emplace_back(shape);
  std::vector<std::vector<float>> outs;
  for (const Sequence& sequence : sequences) outs.push_back(sequence.initial_out());
  std::vector<AttentionArgs> args;
  for (size_t i = 0; i < sequences.size(); ++i) {
    args.push_back(sequences[i].Args(outs[i], 0, sequences[i].shape().rows));
  }
  Attention(args, pool);
  for (size_t i = 0; i < sequences.size(); ++i) {
    const std::vector<float> alone = sequences[i].Run(pool);
    EXPECT_TRUE(SameBits(outs[i].data(), alone.data(), alone.size())) << Text(sequences[i].shape());
  }
}

TEST_P(AttentionTest, ATreeThatIsAChainHasTheBitsOfTheChain) {
  ThreadPool pool(1);
  for (const Shape& shape : Shapes()) {
    if (!shape.parents.empty()) continue;
    const std::vector<float> as_chain = Sequence(shape).Run(pool);
    // The whole pass is the tree, or it follows the first rows.
    for (const size_t rows : {shape.rows, (shape.rows + 1) / 2}) {
      Shape tree = shape;
      for (size_t row = 0; row < rows; ++row) {
        tree.parents.push_back(static_cast<int32_t>(row) - 1);
      }
      const std::vector<float> as_tree = Sequence(tree).Run(pool);
      EXPECT_TRUE(SameBits(as_chain.data(), as_tree.data(), as_chain.size())) << Text(shape);
    }
  }
}

TEST_P(AttentionTest, TheOrderOfPagesInMemoryChangesNothing) {
  ThreadPool pool(1);
  for (const Shape& shape : Shapes()) {
    const std::vector<float> ascending = Sequence(shape, 1, PageOrder::kAscending).Run(pool);
    const std::vector<float> descending = Sequence(shape, 1, PageOrder::kDescending).Run(pool);
    EXPECT_TRUE(SameBits(ascending.data(), descending.data(), ascending.size())) << Text(shape);
  }
}

TEST_P(AttentionTest, LargeScoresStayFinite) {
  ThreadPool pool(1);
  Sequence sequence({4, 2, 16, 100, 4});
  for (float& q : sequence.queries()) q *= 1e4f;
  const std::vector<float> got = sequence.Run(pool);
  const std::vector<float> want = sequence.Reference();
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-2) << i;
}

TEST_P(AttentionTest, ANanInAVisibleRowReachesTheOutput) {
  ThreadPool pool(1);
  const Shape shape{2, 1, 8, 70, 1};
  Sequence sequence(shape);
  sequence.kv().Values(0, 0)[5 * shape.head_size] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(sequence.Run(pool)[1]));
}

TEST_P(AttentionTest, AnEmptyCallDoesNothing) {
  ThreadPool pool(2);
  Attention({}, pool);
  Sequence sequence({4, 2, 8, 5, 3});
  std::vector<float> out = sequence.initial_out();
  const AttentionArgs args = sequence.Args(out, 0, 0);
  Attention({&args, 1}, pool);
  EXPECT_EQ(out, sequence.initial_out());
}

INSTANTIATE_TEST_SUITE_P(Targets, AttentionTest, ::testing::ValuesIn(testing::EveryTarget()),
                         testing::TargetName);

TEST(StoreKvTest, PutsKeysTransposedAndValuesInRows) {
  const Shape shape{2, 2, 6, 60, 10};
  const Sequence sequence(shape);
  const size_t kv_floats = shape.num_kv_heads * shape.head_size;
  for (size_t row = 0; row < shape.cached_len + shape.rows; ++row) {
    for (size_t head = 0; head < shape.num_kv_heads; ++head) {
      const float* keys = sequence.kv().Keys(head, row / kKeyBlock);
      const float* values = sequence.kv().Values(head, row / kKeyBlock);
      for (size_t i = 0; i < shape.head_size; ++i) {
        const size_t column = head * shape.head_size + i;
        EXPECT_EQ(keys[i * kKeyBlock + row % kKeyBlock],
                  sequence.keys()[row * (kv_floats + 3) + column]);
        EXPECT_EQ(values[row % kKeyBlock * shape.head_size + i],
                  sequence.values()[row * (kv_floats + 5) + column]);
      }
    }
  }
}

}  // namespace
}  // namespace tandem
