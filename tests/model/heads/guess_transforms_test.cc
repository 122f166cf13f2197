// Tests that guesses see what a request does to the target's logits. The vocabularies are so small
// that heads list all tokens, so guesses must have the chances that the real transforms give.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/model/heads/trees/guess_transforms.h"
#include "common/model/kv/kv_page_pool.h"
#include "common/model/language_model.h"
#include "kernels/sampling/transform/transform.h"
#include "tests/model/heads/feed.h"
#include "tests/support/random_heads.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"

namespace tandem::guess_transforms_test {
namespace {

using testing::Feed;
constexpr size_t kVocabularySize = 16;
static_assert(kVocabularySize <= kGuessesToTransform, "heads list all tokens");
constexpr size_t kPromptLength = 4;
const std::vector<int32_t> kText = {3, 1, 9, 3, 7, 7, 2, 11, 7};
constexpr int32_t kNewest = 5;
constexpr int32_t kNumOutput = 6;  // kText without the prompt, and kNewest

struct Case {
  std::string name;
  SamplingParams params;
};

std::vector<Case> Cases() {
  std::vector<Case> cases(6);
  cases[0].name = "repetition penalty";
  cases[0].params.repetition_penalty = 1.7f;
  cases[1].name = "frequency and presence penalty";
  cases[1].params.frequency_penalty = 0.6f;
  cases[1].params.presence_penalty = 0.4f;
  cases[2].name = "biases";
  cases[2].params.logit_bias = {{3, -100.0f}, {5, 2.0f}, {9, -1.0f}};
  cases[3].name = "min_tokens";  // until the third token of a path
  cases[3].params.min_tokens = kNumOutput + 2;
  cases[3].params.held_back_token_ids = {0, 2, 4, 6, 8};
  cases[4].name = "all of them";
  cases[4].params = cases[3].params;
  cases[4].params.repetition_penalty = 1.3f;
  cases[4].params.frequency_penalty = 0.3f;
  cases[4].params.logit_bias = cases[2].params.logit_bias;
  cases[5].name = "all of them, greedy";
  cases[5].params = cases[4].params;
  cases[5].params.temperature = 0;
  return cases;
}

TokenCounts CountsOf(std::span<const int32_t> text) {
  TokenCounts counts;
  for (size_t i = 0; i < text.size(); ++i) counts.Add(text[i], i >= kPromptLength);
  return counts;
}

std::optional<GuessTransforms> TransformsOf(const SamplingParams& params,
                                            const TokenCounts& counts) {
  return GuessTransforms::After({.params = &params,
                                 .counts = &counts,
                                 .newest_token_id = kNewest,
                                 .num_output_tokens = kNumOutput,
                                 .vocabulary_size = kVocabularySize});
}

// Returns the chances after kText, kNewest and `path` that the real transforms give.
std::vector<double> ChancesOf(const std::vector<float>& logits, const SamplingParams& params,
                              std::span<const int32_t> path, double sharpness) {
  TokenCounts counts = CountsOf(kText);
  counts.Add(kNewest, true);
  for (const int32_t id : path) counts.Add(id, true);
  std::vector<float> adjusted(logits.size());
  AdjustLogits(logits, params, counts, kNumOutput + static_cast<int32_t>(path.size()), adjusted);
  const double max = *std::max_element(adjusted.begin(), adjusted.end());
  std::vector<double> chances;
  double sum = 0;
  for (const float logit : adjusted) {
    chances.push_back(std::exp((double{logit} - max) * sharpness));
    sum += chances.back();
  }
  for (double& chance : chances) chance /= sum;
  return chances;
}

using LogitsAfter = std::function<std::vector<float>(std::span<const int32_t> path)>;

// Checks that each node has the chance that the transforms give, that each likeliest child is the
// likeliest token, and that no forbidden token is there.
//   first_is_sure  the likeliest first token has the chance 1, and no sibling
void CheckTree(const GuessTree& tree, const LogitsAfter& logits, const SamplingParams& params,
               double sharpness, bool first_is_sure, const std::string& what) {
  ASSERT_GE(tree.token_ids.size(), 6u) << what;
  std::vector<std::vector<int32_t>> paths;
  std::vector<bool> has_child(tree.token_ids.size() + 1);
  size_t deepest = 0;
  for (size_t node = 0; node < tree.token_ids.size(); ++node) {
    const auto parent = static_cast<size_t>(tree.parents[node] + 1);
    const std::vector<int32_t> path = parent == 0 ? std::vector<int32_t>() : paths[parent - 1];
    const std::vector<double> want = ChancesOf(logits(path), params, path, sharpness);
    const int32_t id = tree.token_ids[node];
    const bool is_sure = first_is_sure && parent == 0;
    const double chance = want[static_cast<size_t>(id)];
    EXPECT_GT(chance, 1e-9) << what << ": a forbidden token";
    EXPECT_NEAR(tree.chances[node], is_sure ? 1 : chance, 2e-5) << what << ", node " << node;
    if (!has_child[parent]) {
      EXPECT_EQ(id, std::max_element(want.begin(), want.end()) - want.begin()) << what;
    } else {
      EXPECT_FALSE(is_sure);
    }
    has_child[parent] = true;
    paths.push_back(path);
    paths.back().push_back(id);
    deepest = std::max(deepest, paths.back().size());
  }
  EXPECT_GE(deepest, 3u) << what;
}

// ---------------------------------------------------------------- guesses

std::vector<float> SomeLogits(int seed) {
  std::vector<float> logits;
  for (size_t i = 0; i < kVocabularySize; ++i) {
    logits.push_back(static_cast<float>((i * 37 + static_cast<size_t>(seed) * 11) % 29) * 0.3f - 4);
  }
  return logits;
}

TEST(GuessTransformsTest, GuessesGetTheChancesOfTheRealTransforms) {
  const TokenCounts counts = CountsOf(kText);
  for (const Case& each : Cases()) {
    const auto transforms = TransformsOf(each.params, counts);
    ASSERT_TRUE(transforms.has_value()) << each.name;
    for (int seed = 0; seed < 8; ++seed) {
      const std::vector<float> logits = SomeLogits(seed);
      for (const double temperature : {1.0, 0.7, 0.0}) {
        for (const std::vector<int32_t>& path :
             {std::vector<int32_t>{}, {5}, {5, 5, 14}, {1, 2, 3, 4}}) {
          std::vector<Guess> guesses = LikeliestGuesses(logits, kGuessesToTransform);
          Sharpen(guesses, temperature);
          transforms->Apply(path, SharpnessAt(temperature), guesses);
          std::vector<double> want = ChancesOf(logits, each.params, path, SharpnessAt(temperature));
          ASSERT_EQ(guesses.size(), 8u) << each.name;
          for (const Guess& guess : guesses) {
            EXPECT_NEAR(guess.chance, want[static_cast<size_t>(guess.token_id)], 1e-5) << each.name;
          }
          std::sort(want.begin(), want.end(), std::greater<>());
          for (size_t i = 0; i < guesses.size(); ++i) EXPECT_NEAR(guesses[i].chance, want[i], 1e-5);
        }
      }
    }
  }
}

TEST(GuessTransformsTest, ARequestWithoutTransformsHasNone) {
  const TokenCounts counts = CountsOf(kText);
  SamplingParams params;
  params.top_k = 3;
  params.min_tokens = kNumOutput;
  params.held_back_token_ids = {2};
  EXPECT_FALSE(TransformsOf(params, counts).has_value()) << "min_tokens are reached";
  params.min_tokens = kNumOutput + 1;
  EXPECT_TRUE(TransformsOf(params, counts).has_value());
  EXPECT_FALSE(static_cast<bool>(AdjustmentBy(nullptr, 1)));
}

TEST(GuessTransformsTest, ALargeBiasBringsATokenThatTheHeadDoesNotList) {
  const TokenCounts counts = CountsOf(kText);
  SamplingParams params;
  params.logit_bias = {{12, 100.0f}, {13, 0.5f}, {1, -100.0f}};
  const auto transforms = TransformsOf(params, counts);
  const std::vector<Guess> listed = {{1, 0.9f, 4.0f}, {2, 0.05f, 1.1f}, {3, 0.02f, 0.2f}};
  std::vector<Guess> guesses = listed;
  transforms->Apply({}, 1, guesses);
  ASSERT_FALSE(guesses.empty());
  EXPECT_EQ(guesses[0].token_id, 12);
  EXPECT_NEAR(guesses[0].chance, 1, 1e-6);
  params.logit_bias[0].second = 0.5f;
  guesses = listed;
  TransformsOf(params, counts)->Apply({}, 1, guesses);
  ASSERT_GE(guesses.size(), 2u);
  EXPECT_EQ(guesses[0].token_id, 2) << "small biases do not count for more than what is listed";
  for (const Guess& guess : guesses) EXPECT_NE(guess.token_id, 1);
}

TEST(GuessTransformsTest, ExtremeParametersGiveChances) {
  const TokenCounts counts = CountsOf(kText);
  for (const float penalty : {1e-6f, 1e6f}) {
    for (const float bias : {-100.0f, 100.0f}) {
      SamplingParams params;
      params.repetition_penalty = penalty;
      params.logit_bias = {{7, bias}, {8, bias}};
      std::vector<Guess> guesses = LikeliestGuesses(SomeLogits(1), kGuessesToTransform);
      TransformsOf(params, counts)->Apply({}, SharpnessAt(0), guesses);
      ASSERT_FALSE(guesses.empty());
      for (const Guess& guess : guesses) {
        EXPECT_TRUE(guess.chance > 0 && guess.chance <= 1) << guess.chance;
      }
    }
  }
  SamplingParams params;
  params.min_tokens = 100;
  for (int32_t i = 0; i < 16; ++i) params.held_back_token_ids.push_back(i);
  std::vector<Guess> none;
  const auto transforms = TransformsOf(params, counts);
  transforms->Apply({}, 1, none);
  EXPECT_TRUE(none.empty());
  std::vector<Guess> guesses = LikeliestGuesses(SomeLogits(1), kGuessesToTransform);
  transforms->Apply({}, 1, guesses);
  EXPECT_EQ(guesses.size(), 8u) << "a mask that leaves no token is not applied";
  params.held_back_token_ids.pop_back();
  guesses = {{2, 0.9f, 3.0f}};
  TransformsOf(params, counts)->Apply({}, 1, guesses);
  EXPECT_TRUE(guesses.empty()) << "all that is known is held back";
}

// ---------------------------------------------------------------- drafters

class TransformedTreesTest : public ::testing::Test {
 protected:
  static testing::RandomModelSpec Spec(size_t num_layers) {
    return {.vocabulary_size = kVocabularySize, .num_layers = num_layers, .embedding_scale = 0.5};
  }
  void SetUp() override { testing::WriteRandomModel(dir_ / "target", Spec(3)); }

  void Load() {
    model_ = *LanguageModel::Load(dir_ / "target", &threads_, dir_ / "heads");
    pages_ = *KvPagePool::Create(model_->kv_shape(), uint64_t{1} << 24);
    cache_ = std::make_unique<KvCache>(pages_.get(), 256);
    Feed(*model_, *cache_, kText);
    model_->self_drafter()->KeepFeature(0, 0);
  }
  // Returns the logits of a model after kText and more tokens.
  static std::vector<float> TargetLogits(LanguageModel& model, std::vector<int32_t> more) {
    const auto pages = *KvPagePool::Create(model.kv_shape(), uint64_t{1} << 22);
    KvCache cache(pages.get(), 256);
    more.insert(more.begin(), kText.begin(), kText.end());
    return Feed(model, cache, more);
  }
  GuessOrder Order(const SamplingParams& params, const GuessTransforms* transforms,
                   const GuessLimits& limits) {
    return {.text = {cache_.get(), kText},
            .next_token_id = kNewest,
            .temperature = double{params.temperature},
            .transforms = transforms,
            .limits = limits,
            .tree = {}};
  }
  GuessTree Guess(GuessOrder order) {
    EXPECT_TRUE(model_->self_drafter()->CatchUp({&order.text, 1}).ok());
    EXPECT_TRUE(model_->self_drafter()->Propose({&order, 1}).ok());
    return std::move(order.tree);
  }
  GuessTree Guess(const SamplingParams& params, const GuessLimits& limits) {
    const auto transforms = TransformsOf(params, counts_);
    return Guess(Order(params, transforms.has_value() ? &*transforms : nullptr, limits));
  }
  // Checks trees and chains of all cases.
  void Check(const LogitsAfter& logits, bool sharpens, bool first_is_sure) {
    for (const Case& each : Cases()) {
      const double sharpness = sharpens ? SharpnessAt(each.params.temperature) : 1;
      const bool is_sure = first_is_sure && each.params.greedy();
      const GuessTree tree = Guess(each.params, {.depth = 3, .nodes = 40});
      CheckTree(tree, logits, each.params, sharpness, is_sure, each.name);
      const GuessTree chain = Guess(each.params, {.depth = 3, .nodes = 0});
      ASSERT_EQ(chain.token_ids.size(), 3u) << each.name;
      std::vector<int32_t> path;
      for (const int32_t id : chain.token_ids) {
        const std::vector<double> want = ChancesOf(logits(path), each.params, path, sharpness);
        EXPECT_EQ(id, std::max_element(want.begin(), want.end()) - want.begin()) << each.name;
        path.push_back(id);
      }
    }
  }
  // Checks that an order without transforms gets the same bits beside one that has some.
  void CheckThatPlainOrdersStayTheSame() {
    const SamplingParams plain;
    const GuessLimits limits = {.depth = 3, .nodes = 16};
    const GuessTree alone = Guess(plain, limits);
    const std::vector<Case> cases = Cases();
    const auto transforms = TransformsOf(cases[4].params, counts_);
    KvCache other(pages_.get(), 256);
    Feed(*model_, other, kText);
    model_->self_drafter()->KeepFeature(0, 0);
    std::vector<GuessOrder> orders = {Order(plain, nullptr, limits),
                                      Order(cases[4].params, &*transforms, limits)};
    orders[1].text.cache = &other;
    ASSERT_TRUE(model_->self_drafter()->Propose(orders).ok());
    EXPECT_EQ(orders[0].tree.token_ids, alone.token_ids);
    EXPECT_EQ(orders[0].tree.parents, alone.parents);
    EXPECT_EQ(orders[0].tree.chances, alone.chances);
    EXPECT_EQ(orders[1].tree.token_ids, Guess(cases[4].params, limits).token_ids);
    EXPECT_NE(orders[1].tree.token_ids, alone.token_ids);
  }

  testing::TempDir dir_;
  ThreadPool threads_{2};
  TokenCounts counts_ = CountsOf(kText);
  std::unique_ptr<LanguageModel> model_;
  std::unique_ptr<KvPagePool> pages_;
  std::unique_ptr<KvCache> cache_;
};

// Makes all weights of a file zeros.
void ClearWeights(const std::filesystem::path& path) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  uint64_t header_size = 0;
  file.read(reinterpret_cast<char*>(&header_size), sizeof(header_size));
  const uint64_t begin = sizeof(header_size) + header_size;
  const std::string zeros(std::filesystem::file_size(path) - begin, '\0');
  file.seekp(static_cast<std::streamoff>(begin));
  file << zeros;
  ASSERT_TRUE(file.flush().good());
}

TEST_F(TransformedTreesTest, Blockwise) {
  // A residual layer of zeros leaves the feature as it is, so each head guesses the token that the
  // target expects after the text.
  testing::WriteRandomHeads(
      dir_ / "heads",
      {.vocabulary_size = kVocabularySize, .shares_output = true, .uses_target_output = true});
  ClearWeights(dir_ / "heads" / "model.safetensors");
  Load();
  EXPECT_EQ(model_->self_drafter()->name(), "blockwise");
  const std::vector<float> logits = TargetLogits(*model_, {});
  Check([&](std::span<const int32_t>) { return logits; }, /*sharpens=*/false,
        /*first_is_sure=*/false);
  CheckThatPlainOrdersStayTheSame();
}

TEST_F(TransformedTreesTest, LayerSkip) {
  testing::WriteSkippedLayers(dir_ / "heads", {2}, 3);
  testing::WriteRandomModel(dir_ / "small", Spec(2));
  const auto small = *LanguageModel::Load(dir_ / "small", &threads_);
  Load();
  Check(
      [&](std::span<const int32_t> path) {
        std::vector<int32_t> more(path.begin(), path.end());
        more.insert(more.begin(), kNewest);
        return TargetLogits(*small, more);
      },
      /*sharpens=*/true, /*first_is_sure=*/false);
  CheckThatPlainOrdersStayTheSame();
}

TEST_F(TransformedTreesTest, Pass) {
  testing::WriteRandomLookAhead(dir_ / "heads", {.num_rows = 2});
  Load();
  // What the rows guess does not depend on the path. The target has the first row's logits.
  const std::vector<float> own = TargetLogits(*model_, {kNewest});
  for (const Case& each : Cases()) {
    const double sharpness = SharpnessAt(each.params.temperature);
    const std::vector<double> want = ChancesOf(own, each.params, {}, sharpness);
    const GuessTree tree = Guess(each.params, {.depth = 1, .nodes = 8});
    ASSERT_EQ(tree.token_ids.size(), each.params.greedy() ? 1u : 8u) << each.name;
    EXPECT_EQ(tree.token_ids[0], std::max_element(want.begin(), want.end()) - want.begin());
    for (size_t i = 0; i < tree.token_ids.size(); ++i) {
      const double chance = want[static_cast<size_t>(tree.token_ids[i])];
      EXPECT_NEAR(tree.chances[i], each.params.greedy() ? 1 : chance, 2e-5) << each.name;
    }
  }
  CheckThatPlainOrdersStayTheSame();
}

// Heads of which no other model has the logits.
TEST_F(TransformedTreesTest, MedusaAndEagleNeverGuessForbiddenTokens) {
  testing::WriteRandomHeads(dir_ / "medusa", {.vocabulary_size = kVocabularySize});
  testing::WriteRandomEagle(dir_ / "eagle", {.vocabulary_size = kVocabularySize});
  testing::WriteRandomEagle(dir_ / "eagle3", {.vocabulary_size = kVocabularySize,
                                              .is_third = true,
                                              .truncated_vocabulary_size = 12,
                                              .layer_ids = {1, 2}});
  for (const char* kind : {"medusa", "eagle", "eagle3"}) {
    std::filesystem::remove_all(dir_ / "heads");
    std::filesystem::copy(dir_ / kind, dir_ / "heads");
    cache_.reset();
    Load();
    const GuessTree plain = Guess({}, {.depth = 3, .nodes = 32});
    ASSERT_GE(plain.token_ids.size(), 6u) << kind;
    const int32_t likeliest = plain.token_ids[0];
    SamplingParams banned;
    banned.logit_bias = {{likeliest, -100.0f}};
    SamplingParams held_back;
    held_back.min_tokens = 100;
    held_back.held_back_token_ids = {likeliest};
    SamplingParams repeated;  // a token is at most once on a path, and not in the output before it
    repeated.presence_penalty = 1000;
    for (const SamplingParams& params : {banned, held_back, repeated}) {
      const GuessTree tree = Guess(params, {.depth = 3, .nodes = 32});
      ASSERT_GE(tree.token_ids.size(), 6u) << kind;
      for (size_t node = 0; node < tree.token_ids.size(); ++node) {
        const int32_t id = tree.token_ids[node];
        if (params.presence_penalty == 0) {
          EXPECT_NE(id, likeliest) << kind;
          continue;
        }
        EXPECT_NE(id, kNewest) << kind;
        EXPECT_EQ(std::count(kText.begin() + kPromptLength, kText.end(), id), 0) << kind;
        for (int32_t at = tree.parents[node]; at >= 0; at = tree.parents[static_cast<size_t>(at)]) {
          EXPECT_NE(id, tree.token_ids[static_cast<size_t>(at)]) << kind;
        }
      }
    }
    CheckThatPlainOrdersStayTheSame();
  }
}

}  // namespace
}  // namespace tandem::guess_transforms_test
