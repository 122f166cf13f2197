// Tests models of a large shape that give the text of a small model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/inflate/inflated_heads.h"
#include "bench/inflate/inflated_model.h"
#include "common/model/checkpoint/checkpoint.h"
#include "common/model/heads/eagle/eagle_description.h"
#include "common/model/kv/kv_page_pool.h"
#include "common/model/language_model.h"
#include "kernels/sampling/transform/transform.h"
#include "tests/support/random_heads.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::filesystem::path kTales =
    std::filesystem::path(TANDEM_SOURCE_DIR) / "tests" / "models" / "tales";

// A shape for the embedded drafter (width 128, 2 layers, 4 query heads and 2 key heads of size 32,
// 4,096 tokens).
constexpr InflatedShape kExact = {.vocabulary_size = 4224,
                                  .hidden_size = 512,
                                  .intermediate_size = 512,
                                  .num_layers = 3,
                                  .num_heads = 12,
                                  .num_kv_heads = 3,
                                  .head_size = 128};
constexpr InflatedShape kInexact = {.vocabulary_size = 4224,
                                    .hidden_size = 384,
                                    .intermediate_size = 400,
                                    .num_layers = 2,
                                    .num_heads = 8,
                                    .num_kv_heads = 2,
                                    .head_size = 64};
// Returns the shape with a smaller vocabulary, MLP and depth, which would only cost time.
InflatedShape Narrow(InflatedShape shape, size_t intermediate_size, size_t num_layers) {
  shape.vocabulary_size = 4224;
  shape.intermediate_size = intermediate_size;
  shape.num_layers = num_layers;
  return shape;
}
// Returns the width of the 1B shape, with heads for which the result is exact.
InflatedShape ExactOfWidth1B() {
  InflatedShape shape = Narrow(Llama1B(), 512, 3);
  shape.num_heads = 16;
  shape.num_kv_heads = 4;
  shape.head_size = 128;
  return shape;
}
// A shape for the embedded target (width 256, 6 layers, 4 query heads and 2 key heads of size 64).
constexpr InflatedShape kExactOfTarget = {.vocabulary_size = 4224,
                                          .hidden_size = 1024,
                                          .intermediate_size = 800,
                                          .num_layers = 7,
                                          .num_heads = 6,
                                          .num_kv_heads = 3,
                                          .head_size = 256};

struct Case {
  const char* model;
  std::vector<InflatedShape> shapes;
};

// The logits of every row of a text that the model continues greedily.
struct Decoded {
  std::vector<int32_t> tokens;
  std::vector<std::vector<float>> logits;
};

// Feeds `tokens`. If there are none, feeds a prompt and the model's own greedy output.
Decoded RunModel(const std::filesystem::path& folder, std::vector<int32_t> tokens = {}) {
  ThreadPool threads(2);
  const auto model = LanguageModel::Load(folder, &threads);
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return {};
  const ModelDescription& config = (*model)->description();
  constexpr size_t kRows = 128;
  const auto pages = *KvPagePool::Create(config, HostKvMemory::Bytes(config, kRows));
  KvCache cache(pages.get(), kRows);
  const bool goes_on = tokens.empty();
  Decoded run;
  run.tokens = goes_on ? std::vector<int32_t>{4094, 300, 17, 1200} : std::move(tokens);
  const size_t end = goes_on ? 60 : run.tokens.size();
  for (size_t row = 0; row < end; ++row) {
    const ForwardItem item{.cache = &cache,
                           .token_ids = std::span(run.tokens).subspan(row, 1),
                           .parents = {},
                           .num_logits = 1};
    const LogitsView logits = *(*model)->Forward(std::span(&item, 1));
    run.logits.emplace_back(logits.row(0), logits.row(0) + config.vocabulary_size);
    if (goes_on && row + 1 == run.tokens.size()) run.tokens.push_back(Argmax(run.logits.back()));
  }
  return run;
}

// Returns the largest difference of the logits of the model's own tokens, relative to the largest
// logit. Every added token must have a very low logit.
double LargestDifference(const Decoded& small, const Decoded& large) {
  double difference = 0;
  double scale = 0;
  for (size_t row = 0; row < small.logits.size(); ++row) {
    const size_t size = small.logits[row].size();
    for (size_t id = 0; id < size; ++id) {
      const double want = small.logits[row][id];
      scale = std::max(scale, std::abs(want));
      difference = std::max(difference, std::abs(large.logits[row][id] - want));
    }
    for (size_t id = size; id < large.logits[row].size(); ++id) {
      EXPECT_LT(large.logits[row][id], -1e5f);
      EXPECT_TRUE(std::isfinite(large.logits[row][id]));
    }
  }
  return difference / scale;
}

TEST(InflateModelTest, WithScalesThatArePowersOfTwoTheTextIsTheSmallModels) {
  for (const auto& [model, shapes] :
       {Case{"draft", {kExact, ExactOfWidth1B()}}, {"target", {kExactOfTarget}}}) {
    const Decoded small = RunModel(kTales / model);
    for (const InflatedShape& shape : shapes) {
      SCOPED_TRACE(absl::StrCat(model, " in a width of ", shape.hidden_size));
      ASSERT_TRUE(IsExact(*ModelDescription::Load(kTales / model), shape));
      const testing::TempDir folder;
      const absl::Status status =
          InflateModel(kTales / model, folder / "large", shape, [](uint64_t, uint64_t) {});
      ASSERT_TRUE(status.ok()) << status;
      const Decoded large = RunModel(folder / "large");
      EXPECT_EQ(large.tokens, small.tokens);
      EXPECT_LT(LargestDifference(small, large), 1e-5);
    }
  }
}

TEST(InflateModelTest, WithOtherScalesLogitsAreWithinTheRoundingOfWeights) {
  for (const auto& [model, shapes] : {Case{"draft", {kInexact, Narrow(Llama1B(), 512, 2)}},
                                      {"target", {Narrow(Llama3B(), 800, 6)}}}) {
    const Decoded small = RunModel(kTales / model);
    for (const InflatedShape& shape : shapes) {
      SCOPED_TRACE(absl::StrCat(model, " in a width of ", shape.hidden_size));
      ASSERT_FALSE(IsExact(*ModelDescription::Load(kTales / model), shape));
      const testing::TempDir folder;
      ASSERT_TRUE(InflateModel(kTales / model, folder / "large", shape, nullptr).ok());
      const Decoded large =
          RunModel(folder / "large", {small.tokens.begin(), small.tokens.begin() + 60});
      const double difference = LargestDifference(small, large);
      EXPECT_LT(difference, 2e-2);
      EXPECT_GT(difference, 1e-5) << "otherwise the bound would prove nothing";
    }
  }
}

TEST(InflateModelTest, BiasesAndAnUntiedVocabularyHeadAreInflatedToo) {
  const testing::TempDir folder;
  testing::RandomModelSpec spec;
  spec.tied_embeddings = false;
  spec.attention_bias = true;
  spec.mlp_bias = true;
  testing::WriteRandomModel(folder / "small", spec);
  const absl::Status status = InflateModel(folder / "small", folder / "large",
                                           {.vocabulary_size = 100,
                                            .hidden_size = 128,
                                            .intermediate_size = 96,
                                            .num_layers = 4,
                                            .num_heads = 6,
                                            .num_kv_heads = 2,
                                            .head_size = 32},
                                           nullptr);
  ASSERT_TRUE(status.ok()) << status;
  const std::vector<int32_t> tokens = {5, 11, 3, 40, 22, 7, 7, 61};
  EXPECT_LT(
      LargestDifference(RunModel(folder / "small", tokens), RunModel(folder / "large", tokens)),
      1e-5);
}

TEST(InflateModelTest, TheEmbeddedPairFitsTheLargeShapes) {
  const auto draft = ModelDescription::Load(kTales / "draft");
  const auto target = ModelDescription::Load(kTales / "target");
  ASSERT_TRUE(draft.ok() && target.ok());
  EXPECT_TRUE(CheckInflation(*draft, Llama1B()).ok());
  EXPECT_TRUE(CheckInflation(*target, Llama3B()).ok());
  EXPECT_FALSE(IsExact(*target, Llama3B()));
  EXPECT_TRUE(IsExact(*draft, kExact));
}

TEST(InflateModelTest, ShapesThatCannotHoldTheModelAreRefusedByName) {
  const auto refusal = [](auto change) {
    InflatedShape shape = kExact;
    change(shape);
    const absl::Status status =
        InflateModel(kTales / "draft", "/nonexistent/large", shape, nullptr);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refusal([](InflatedShape& s) { s.hidden_size = 64; }), HasSubstr("hidden_size"));
  EXPECT_THAT(refusal([](InflatedShape& s) { s.num_layers = 1; }), HasSubstr("num_hidden_layers"));
  EXPECT_THAT(refusal([](InflatedShape& s) { s.num_heads = 3; }), HasSubstr("num_attention_heads"));
  EXPECT_THAT(refusal([](InflatedShape& s) { s.head_size = 48; }), HasSubstr("head_dim"));
  EXPECT_THAT(refusal([](InflatedShape& s) { s.hidden_size = 128; }), HasSubstr("vocab_size"));
}

// ---------------------------------------------------------------- heads

// A shape for random models of 16 layers and otherwise the default sizes, in which everything is
// exact. With so many layers, a step of EAGLE costs little, so unlikely paths grow in both models.
constexpr InflatedShape kRandomShape = {.vocabulary_size = 100,
                                        .hidden_size = 128,
                                        .intermediate_size = 128,
                                        .num_layers = 18,
                                        .num_heads = 6,
                                        .num_kv_heads = 3,
                                        .head_size = 32};

// What the heads of a model guess after a text.
GuessTree GuessOf(const std::filesystem::path& model_folder, const std::filesystem::path& heads) {
  ThreadPool threads(1);
  const auto model = LanguageModel::Load(model_folder, &threads, heads);
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return {};
  const KvShape shape = (*model)->kv_shape();
  const auto pages = *KvPagePool::Create(shape, 4 * HostKvMemory::PageBytes(shape));
  KvCache cache(pages.get(), 200);
  const std::vector<int32_t> text = {5, 11, 3, 40, 22, 7, 7, 61, 20, 33};
  const ForwardItem item{.cache = &cache, .token_ids = text, .parents = {}, .num_logits = 1};
  EXPECT_TRUE((*model)->Forward(std::span(&item, 1)).ok());
  SelfDrafter& drafter = *(*model)->self_drafter();
  drafter.KeepFeature(0, 0);
  GuessOrder order = {.place = 0,
                      .text = {&cache, text},
                      .next_token_id = 9,
                      .limits = {.depth = 3, .nodes = 6},
                      .tree = {}};
  EXPECT_TRUE(drafter.Propose({&order, 1}).ok());
  return std::move(order.tree);
}

class InflateHeadsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::WriteRandomModel(folder_ / "small", {.num_layers = 16, .embedding_scale = 0.5});
    ASSERT_TRUE(InflateModel(folder_ / "small", folder_ / "large", kRandomShape, nullptr).ok());
  }
  absl::Status Inflate() {
    return InflateHeads(folder_ / "heads", folder_ / "large-heads", folder_ / "small",
                        kRandomShape);
  }
  // The layers of the target whose states a layer of EAGLE reads.
  std::vector<size_t> LayersOf(const std::filesystem::path& heads) const {
    const auto description = EagleDescription::Load(heads, **Checkpoint::Open(heads),
                                                    *ModelDescription::Load(folder_ / "large"));
    EXPECT_TRUE(description.ok()) << description.status();
    std::vector<size_t> layers;
    if (!description.ok()) return layers;
    for (const RowFeatures::Part& part : description->features.parts) layers.push_back(part.layer);
    return layers;
  }
  // Inflated heads of an inflated model guess what the small ones do.
  void ExpectTheSame() {
    const absl::Status status = Inflate();
    ASSERT_TRUE(status.ok()) << status;
    const GuessTree small = GuessOf(folder_ / "small", folder_ / "heads");
    const GuessTree large = GuessOf(folder_ / "large", folder_ / "large-heads");
    EXPECT_EQ(small.token_ids.size(), 6u);
    EXPECT_EQ(large.token_ids, small.token_ids);
    EXPECT_EQ(large.parents, small.parents);
    ASSERT_EQ(large.chances.size(), small.chances.size());
    for (size_t i = 0; i < small.chances.size(); ++i) {
      EXPECT_NEAR(large.chances[i], small.chances[i], 1e-4) << i;
    }
  }

  testing::TempDir folder_;
};

TEST_F(InflateHeadsTest, Medusa) {
  testing::WriteRandomHeads(folder_ / "heads", {.truncated_vocabulary_size = 40, .has_bias = true});
  ExpectTheSame();
}

TEST_F(InflateHeadsTest, Blockwise) {
  testing::WriteRandomHeads(
      folder_ / "heads",
      {.num_layers = 2, .has_bias = true, .shares_output = true, .uses_target_output = true});
  ExpectTheSame();
}

TEST_F(InflateHeadsTest, Eagle) {
  for (const bool has_bias : {false, true}) {
    testing::WriteRandomEagle(folder_ / "heads", {.has_bias = has_bias, .has_output = false});
    ExpectTheSame();
  }
}

TEST_F(InflateHeadsTest, EagleThreeWithTheDefaultLayers) {
  for (const bool has_output : {false, true}) {  // the target's output product, or its own
    SCOPED_TRACE(has_output);
    testing::WriteRandomEagle(folder_ / "heads", {.is_third = true, .has_output = has_output});
    ExpectTheSame();
    // The default of the large target would be layers 2, 9 and 15.
    EXPECT_THAT(LayersOf(folder_ / "large-heads"), ElementsAre(2, 8, 13));
  }
}

TEST_F(InflateHeadsTest, EagleThreeWithADraftVocabulary) {
  testing::WriteRandomEagle(folder_ / "heads", {.intermediate_size = 64,
                                                .is_third = true,
                                                .truncated_vocabulary_size = 40,
                                                .layer_ids = {0, 5, 9, 16}});
  ExpectTheSame();
  EXPECT_THAT(LayersOf(folder_ / "large-heads"), ElementsAre(0, 5, 9, 16));
  const auto checkpoint = *Checkpoint::Open(folder_ / "large-heads");
  const Tensor& offsets = **checkpoint->Get("d2t");
  const Tensor& mask = **checkpoint->Get("t2d");
  EXPECT_THAT(offsets.shape, ElementsAre(40));
  EXPECT_THAT(mask.shape, ElementsAre(100));
  EXPECT_EQ(mask.dtype, "BOOL");
  std::vector<uint8_t> want(100);
  for (size_t i = 0; i < 40; ++i) {
    int64_t offset = 0;
    std::memcpy(&offset, static_cast<const std::byte*>(offsets.data) + i * sizeof(offset),
                sizeof(offset));
    want[i + static_cast<size_t>(offset)] = 1;
  }
  EXPECT_EQ(std::memcmp(mask.data, want.data(), want.size()), 0);
}

TEST_F(InflateHeadsTest, EagleThreeWhoseListNamesLayersThatTheStatesLeave) {
  testing::WriteRandomEagle(folder_ / "heads",
                            {.is_third = true, .layer_ids = {1, 7, 15}, .has_middle_names = false});
  ExpectTheSame();
  EXPECT_THAT(LayersOf(folder_ / "large-heads"), ElementsAre(2, 8, 16));
}

TEST_F(InflateHeadsTest, LayerSkip) {
  testing::WriteSkippedLayers(folder_ / "heads", {1, 7, 9}, 16);
  ExpectTheSame();
}

TEST_F(InflateHeadsTest, Pass) {
  testing::WriteRandomLookAhead(folder_ / "heads", {.deviation = 0.5});
  ExpectTheSame();
}

TEST_F(InflateHeadsTest, WhatCannotBeInflatedIsRefused) {
  testing::WriteRandomEagle(folder_ / "heads", {});
  EXPECT_THAT(std::string(Inflate().message()), HasSubstr("EAGLE-1 and EAGLE-2 can be inflated"));
  testing::WriteRandomEagle(folder_ / "heads", {.is_third = true, .dtype = DType::kF16});
  EXPECT_THAT(std::string(Inflate().message()), HasSubstr("\"fc.weight\" is F16"));
  EXPECT_THAT(std::string(InflateHeads(folder_ / "heads", folder_ / "heads", folder_ / "small",
                                       kRandomShape)
                              .message()),
              HasSubstr("own folder"));
}

}  // namespace
}  // namespace tandem
