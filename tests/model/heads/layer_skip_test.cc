// Tests a target that drafts without some of its layers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/model/kv/kv_page_pool.h"
#include "common/model/language_model.h"
#include "nlohmann/json.hpp"
#include "tests/model/heads/feed.h"
#include "tests/model/model_under_test.h"
#include "tests/support/random_heads.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"

namespace tandem::layer_skip_test {
namespace {

using ::testing::AllOf;
using testing::Feed;
using ::testing::HasSubstr;

constexpr size_t kLayers = 6;

std::vector<int32_t> RandomText(size_t length) {
  std::vector<int32_t> text;
  for (size_t i = 0; i < length; ++i) text.push_back(static_cast<int32_t>((i * 41 + i * i) % 62));
  return text;
}

class LayerSkipTest : public ::testing::Test {
 protected:
  // A tensor's values depend on its name, so a model with fewer layers is the beginning of it.
  static testing::RandomModelSpec Spec(size_t num_layers) {
    return {.num_layers = num_layers, .max_position_embeddings = 512, .embedding_scale = 1.0};
  }
  void SetUp() override { testing::WriteRandomModel(dir_ / "target", Spec(kLayers)); }

  absl::StatusOr<std::unique_ptr<LanguageModel>> Load(const nlohmann::json& skipped,
                                                      const nlohmann::json& num_layers = kLayers) {
    testing::WriteSkippedLayers(dir_ / "heads", skipped, num_layers);
    return LanguageModel::Load(dir_ / "target", &pool_, dir_ / "heads");
  }
  std::string Refusal(const nlohmann::json& skipped, const nlohmann::json& num_layers = kLayers) {
    return std::string(Load(skipped, num_layers).status().message());
  }

  static GuessTree Guess(LanguageModel& model, KvCache& cache, std::span<const int32_t> text,
                         int32_t next, const GuessLimits& limits) {
    GuessOrder order = {
        .text = {&cache, text}, .next_token_id = next, .limits = limits, .tree = {}};
    EXPECT_TRUE(model.self_drafter()->CatchUp({&order.text, 1}).ok());
    EXPECT_TRUE(model.self_drafter()->Propose({&order, 1}).ok());
    EXPECT_EQ(cache.length(), text.size());
    return std::move(order.tree);
  }

  testing::TempDir dir_;
  ThreadPool pool_{2};
};

std::vector<double> Softmax(const std::vector<float>& logits) {
  std::vector<double> chances(logits.begin(), logits.end());
  const double max = *std::max_element(chances.begin(), chances.end());
  double sum = 0;
  for (double& chance : chances) sum += chance = std::exp(chance - max);
  for (double& chance : chances) chance /= sum;
  return chances;
}

TEST_F(LayerSkipTest, TheFirstLayersGuessAsTheModelThatTheyAre) {
  const auto model = *Load({4, 5, 3, 2});
  EXPECT_EQ(model->self_drafter()->name(), "layer_skip");
  EXPECT_EQ(model->self_drafter()->weight_bytes(), 0u);
  EXPECT_EQ(model->kv_shape().num_layers, kLayers);
  EXPECT_EQ(model->kv_shape().feature_floats, 0u);
  testing::WriteRandomModel(dir_ / "small", Spec(2));
  const auto small = *LanguageModel::Load(dir_ / "small", &pool_);
  const auto pages = *KvPagePool::Create(model->kv_shape(), uint64_t{1} << 26);
  const auto small_pages = *KvPagePool::Create(small->kv_shape(), uint64_t{1} << 24);
  size_t num_deep = 0;
  for (const size_t length : {1, 63, 64, 150}) {
    const std::vector<int32_t> text = RandomText(length);
    KvCache cache(pages.get(), 512);
    Feed(*model, cache, text);
    const GuessTree tree = Guess(*model, cache, text, 17, {.depth = 4, .nodes = 24});
    ASSERT_GE(tree.token_ids.size(), 8u);
    for (size_t node = 0; node < tree.token_ids.size(); ++node) {
      std::vector<int32_t> path;
      for (int32_t at = tree.parents[node]; at >= 0; at = tree.parents[static_cast<size_t>(at)]) {
        path.insert(path.begin(), tree.token_ids[static_cast<size_t>(at)]);
      }
      if (!path.empty()) ++num_deep;
      path.insert(path.begin(), 17);
      path.insert(path.begin(), text.begin(), text.end());
      KvCache small_cache(small_pages.get(), 512);
      const std::vector<double> chances = Softmax(Feed(*small, small_cache, path));
      EXPECT_NEAR(tree.chances[node], chances[static_cast<size_t>(tree.token_ids[node])], 1e-5)
          << "length " << length << ", node " << node;
    }
  }
  EXPECT_GT(num_deep, 4u) << "trees have branches below the first level";
}

TEST_F(LayerSkipTest, ProposalsLeaveTheTargetAsItIs) {
  const auto model = *Load({1, 4});
  const auto plain = *LanguageModel::Load(dir_ / "target", &pool_);
  const auto pages = *KvPagePool::Create(model->kv_shape(), uint64_t{1} << 26);
  const auto plain_pages = *KvPagePool::Create(plain->kv_shape(), uint64_t{1} << 26);
  KvCache with(pages.get(), 512);
  KvCache without(plain_pages.get(), 512);
  std::vector<int32_t> text = RandomText(60);
  Feed(*model, with, text);
  Feed(*plain, without, text);
  for (int i = 0; i < 12; ++i) {
    const GuessTree tree = Guess(*model, with, text, 9, {.depth = 4, .nodes = 12});
    const GuessTree again = Guess(*model, with, text, 9, {.depth = 4, .nodes = 12});
    EXPECT_FALSE(tree.token_ids.empty());
    EXPECT_EQ(again.token_ids, tree.token_ids);
    EXPECT_EQ(again.chances, tree.chances);
    const std::vector<int32_t> next = {static_cast<int32_t>((i * 7) % 62)};
    EXPECT_EQ(Feed(*model, with, next), Feed(*plain, without, next));
    text.push_back(next[0]);
  }
}

TEST_F(LayerSkipTest, ListsThatDoNotFitAreRefused) {
  EXPECT_TRUE(Load({0, 5}).ok());
  using nlohmann::json;
  for (const json& list : {json::array(), json({0, 1, 2, 3, 4, 5}), json({6}), json({-1}),
                           json({1, 1}), json({"1"}), json({1.5}), json(3), json()}) {
    EXPECT_THAT(Refusal(list), AllOf(HasSubstr("heads/config.json: skipped_layers is "),
                                     HasSubstr("different layers from 0 to 5")))
        << list;
  }
  EXPECT_THAT(Refusal({1}, 7), HasSubstr("num_hidden_layers is 7, the target has 6"));
  EXPECT_THAT(Refusal({1}, nullptr), HasSubstr("num_hidden_layers"));
}

}  // namespace
}  // namespace tandem::layer_skip_test
