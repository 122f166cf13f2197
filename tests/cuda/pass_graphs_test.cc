// Tests which passes become graphs, and that graphs give the bits of passes without graphs.
#include "common/model/cuda/pass_graphs.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <vector>

#include "common/model/cuda/cuda_model.h"
#include "tests/model/model_under_test.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

TEST(PassGraphsTest, BlocksAreRoundedUpToAPowerOfTwoWithinTheLimit) {
  EXPECT_EQ(PassGraphs::RoundBlocks(1, 100), 1u);
  EXPECT_EQ(PassGraphs::RoundBlocks(5, 100), 8u);
  EXPECT_EQ(PassGraphs::RoundBlocks(64, 100), 64u);
  EXPECT_EQ(PassGraphs::RoundBlocks(65, 100), 100u);
}

class PassGraphsModelTest : public ::testing::Test {
 protected:
  static constexpr size_t kContext = 200;

  void SetUp() override {
    if (const std::string why = testing::WhyNoDevice(); !why.empty()) GTEST_SKIP() << why;
    testing::RandomModelSpec spec;
    spec.vocabulary_size = 24;
    spec.hidden_size = 8;
    spec.num_layers = 2;
    spec.num_heads = 2;
    spec.num_kv_heads = 1;
    spec.head_size = 4;
    spec.intermediate_size = 8;
    spec.embedding_scale = 2;
    spec.dtype = DType::kBF16;
    testing::WriteRandomModel(folder_.path(), spec);
    with_ = Load(true);
    without_ = Load(false);
  }

  struct Loaded {
    std::unique_ptr<CudaModel> model;
    std::unique_ptr<KvPagePool> pages;
    std::deque<KvCache> caches;
  };
  Loaded Load(bool use_graphs) const {
    Loaded loaded;
    loaded.model = *CudaModel::Load(folder_.path(), {.max_context = kContext,
                                                     .max_slots = 3,
                                                     .spoil_freed_rows = true,
                                                     .use_graphs = use_graphs});
    loaded.pages = *loaded.model->TakePages();
    for (int i = 0; i < 3; ++i) loaded.caches.emplace_back(loaded.pages.get(), kContext);
    return loaded;
  }

  struct Part {
    size_t cache = 0;
    size_t rows = 1;
    size_t num_logits = 1;
    std::vector<int32_t> parents = {};
  };
  // Returns the logits of a pass over `parts`. The tokens of a part follow from their positions.
  static std::vector<float> Forward(Loaded& loaded, const std::vector<Part>& parts) {
    std::vector<std::vector<int32_t>> ids;
    for (const Part& part : parts) {
      std::vector<int32_t>& of_part = ids.emplace_back();
      for (size_t i = 0; i < part.rows; ++i) {
        const size_t position = loaded.caches[part.cache].length() + i;
        of_part.push_back(static_cast<int32_t>((position * position + 7 * part.cache + 5) % 24));
      }
    }
    std::vector<ForwardItem> items;
    for (size_t i = 0; i < parts.size(); ++i) {
      items.push_back({.cache = &loaded.caches[parts[i].cache],
                       .token_ids = ids[i],
                       .parents = parts[i].parents,
                       .num_logits = parts[i].num_logits});
    }
    const auto logits = loaded.model->Forward(items);
    EXPECT_TRUE(logits.ok()) << logits.status();
    return {logits->row(0), logits->row(0) + logits->rows * 24};
  }
  void ExpectSame(const std::vector<Part>& parts) {
    const std::vector<float> want = Forward(without_, parts);
    EXPECT_EQ(Forward(with_, parts), want);
  }

  testing::TempDir folder_;
  Loaded with_;
  Loaded without_;
};

TEST_F(PassGraphsModelTest, GiveTheBitsOfPassesKernelByKernel) {
  ExpectSame({{0, 70, 1}});
  ExpectSame({{1, 9, 2}});
  const std::vector<std::vector<Part>> rounds = {
      {{0}, {1}},              // two streams decode
      {{0, 3, 3}, {1, 5, 5}},  // blocks to judge
      {{0, 2, 1}, {1, 1, 1}},  // one catches up, and one drafts
      {{1, 2, 1}, {0, 1, 1}},  // the same rows, but others want logits
      {{0}, {1}, {2, 4, 0}},   // and a piece of a prompt
  };
  // The longest context grows from two blocks of keys to three. Three blocks use graphs for four.
  for (int i = 0; i < 12; ++i) {
    for (const std::vector<Part>& round : rounds) ExpectSame(round);
  }
  EXPECT_EQ(without_.model->graphs().num_recorded(), 0u);
  const uint64_t recorded = with_.model->graphs().num_recorded();
  EXPECT_GE(recorded, 8u);
  EXPECT_LE(recorded, 12u);
  EXPECT_GE(with_.model->graphs().num_started(), 45u) << "out of sixty";
}

TEST_F(PassGraphsModelTest, AGraphServesEveryTreeWithAsManyRows) {
  ExpectSame({{0, 70, 1}});
  ExpectSame({{1, 9, 2}});
  const std::vector<std::vector<int32_t>> trees = {
      {-1, 0, 1, 2, 3}, {-1, -1, -1, -1, -1}, {-1, 0, 0, 1, -1}, {-1, 0}, {}, {-1, 0, 1, 0, 2}};
  for (const std::vector<int32_t>& parents : trees) {
    ExpectSame({{0, 6, 6, parents}, {1}});
    // The tree is judged. One path is kept.
    for (Loaded* loaded : {&with_, &without_}) {
      KvCache& cache = loaded->caches[0];
      const std::vector<int32_t> kept = {0, 1 + static_cast<int32_t>(parents.size()) / 2};
      EXPECT_TRUE(cache.KeepPath(cache.length() - 6, kept).ok());
    }
  }
  EXPECT_EQ(with_.model->graphs().num_recorded(), 1u);
  EXPECT_EQ(with_.model->graphs().num_started(), trees.size() - 1);
}

TEST_F(PassGraphsModelTest, UnusedShapesMakeRoom) {
  // Each pair of sizes has its own shape. The caches are cut back after the pass.
  const auto pass = [&](Loaded& loaded, size_t first, size_t second) {
    const std::vector<float> logits =
        Forward(loaded, {{0, first, 1}, {1, second, second / 2}, {2, 1, 1}});
    for (KvCache& cache : loaded.caches) cache.TruncateTo(0);
    return logits;
  };
  size_t num_shapes = 0;
  for (size_t first = 1; first <= 9; ++first) {
    for (size_t second = 1; second <= 9; ++second, ++num_shapes) {
      for (int again = 0; again < 2; ++again) {
        EXPECT_EQ(pass(with_, first, second), pass(without_, first, second));
      }
    }
  }
  ASSERT_GT(num_shapes, PassGraphs::kMaxGraphs);
  EXPECT_EQ(with_.model->graphs().num_recorded(), num_shapes);
  // The first shape was removed. It is recorded again when it comes twice.
  pass(with_, 1, 1);
  EXPECT_EQ(with_.model->graphs().num_recorded(), num_shapes);
  pass(with_, 1, 1);
  EXPECT_EQ(with_.model->graphs().num_recorded(), num_shapes + 1);
  // The last shape was not removed.
  pass(with_, 9, 9);
  EXPECT_EQ(with_.model->graphs().num_recorded(), num_shapes + 1);
}

}  // namespace
}  // namespace tandem
