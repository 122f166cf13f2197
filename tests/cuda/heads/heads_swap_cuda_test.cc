// Heads that are adopted by a model on a GPU guess as if the model had been loaded with them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/model/cuda/cuda_model.h"
#include "common/model/drafter_room.h"
#include "tests/model/model_under_test.h"
#include "tests/support/random_heads.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"

namespace tandem::heads_swap_cuda_test {
namespace {

constexpr size_t kVocabularySize = 60;
constexpr size_t kContext = 640;

class HeadsSwapCudaTest : public ::testing::Test {
 protected:
  struct Loaded {
    std::unique_ptr<CudaModel> model;
    std::unique_ptr<KvPagePool> pages;
  };

  void SetUp() override {
    if (const std::string why = testing::WhyNoDevice(); !why.empty()) GTEST_SKIP() << why;
    testing::WriteRandomModel(folder_ / "model", {.vocabulary_size = kVocabularySize,
                                                  .hidden_size = 16,
                                                  .num_layers = 4,
                                                  .num_heads = 2,
                                                  .num_kv_heads = 1,
                                                  .head_size = 8,
                                                  .intermediate_size = 64,
                                                  .max_position_embeddings = kContext});
    testing::WriteRandomHeads(folder_ / "medusa",
                              {.hidden_size = 16, .vocabulary_size = kVocabularySize});
    testing::WriteRandomEagle(folder_ / "eagle", Layer());
    testing::RandomEagleSpec third = Layer();
    third.is_third = true;
    third.layer_ids = {0, 2, 3};
    third.output_scale = 1.5;
    testing::WriteRandomEagle(folder_ / "eagle3", third);
    testing::WriteSkippedLayers(folder_ / "layer_skip", {1, 2}, 4);
  }
  static testing::RandomEagleSpec Layer() {
    return {.hidden_size = 16,
            .vocabulary_size = kVocabularySize,
            .num_heads = 2,
            .num_kv_heads = 1,
            .head_size = 8,
            .intermediate_size = 8,
            .output_scale = 2.0};
  }

  Loaded Load(CudaModelOptions options) const {
    options.max_slots = 8;
    options.max_block_rows = 512;
    options.spoil_freed_rows = true;
    auto model = CudaModel::Load(folder_ / "model", std::move(options));
    EXPECT_TRUE(model.ok()) << model.status();
    Loaded loaded{*std::move(model), nullptr};
    loaded.pages = *loaded.model->TakePages();
    return loaded;
  }
  // What the heads of a model guess after a text, which gets a cache of its own. Passes of one row
  // come several times, so that graphs are recorded and started.
  static GuessTree Guess(const Loaded& loaded) {
    std::vector<int32_t> text(70);
    for (size_t i = 0; i < text.size(); ++i) {
      text[i] = static_cast<int32_t>((i * i * 31 + (i + 1) * 17) % kVocabularySize);
    }
    KvCache cache(loaded.pages.get(), kContext);
    const auto feed = [&](std::span<const int32_t> ids) {
      const ForwardItem item = {.cache = &cache, .token_ids = ids, .parents = {}, .num_logits = 1};
      EXPECT_TRUE(loaded.model->Forward({&item, 1}).ok());
    };
    feed(std::span(text).first(64));
    for (size_t i = 64; i < text.size(); ++i) feed(std::span(text).subspan(i, 1));
    SelfDrafter& heads = *loaded.model->self_drafter();
    heads.KeepFeature(0, 0);
    const TextRows rows = {&cache, text};
    EXPECT_TRUE(heads.CatchUp({&rows, 1}).ok());
    GuessOrder order = {.place = 0,
                        .text = rows,
                        .next_token_id = 9,
                        .limits = {.depth = 3, .nodes = 8},
                        .tree = {}};
    const absl::Status status = heads.Propose({&order, 1});
    EXPECT_TRUE(status.ok()) << status;
    return std::move(order.tree);
  }

  testing::TempDir folder_;
};

TEST_F(HeadsSwapCudaTest, AdoptedHeadsGuessAsThoseOfTheBeginning) {
  Loaded swapped = Load({.heads = folder_ / "medusa",
                         .swaps_heads = true,
                         .heads_room = {.kv_layers = 1, .feature_parts = 3}});
  const uint64_t bytes = swapped.model->weight_bytes();
  uint64_t progress = swapped.model->progress();
  for (const std::string name : {"eagle3", "medusa", "eagle", "layer_skip"}) {
    auto heads = swapped.model->LoadHeads(folder_ / name);
    ASSERT_TRUE(heads.ok()) << heads.status();
    const RowFeatures stored = swapped.model->stored_features();
    const absl::Status adopted = swapped.model->AdoptHeads(*std::move(heads));
    ASSERT_TRUE(adopted.ok()) << adopted;
    swapped.pages->ForgetDrafterRows();
    if (swapped.model->stored_features() != stored) swapped.pages->ForgetFeatures();
    EXPECT_GE(swapped.model->progress(), progress);
    progress = swapped.model->progress();

    const Loaded fresh = Load({.heads = folder_ / name});
    const GuessTree expected = Guess(fresh);
    const GuessTree guessed = Guess(swapped);
    EXPECT_FALSE(expected.token_ids.empty()) << name;
    EXPECT_EQ(guessed.token_ids, expected.token_ids) << name;
    EXPECT_EQ(guessed.parents, expected.parents) << name;
    EXPECT_EQ(guessed.chances, expected.chances) << name;
    EXPECT_EQ(swapped.model->weight_bytes(), fresh.model->weight_bytes()) << name;
  }
  ASSERT_TRUE(swapped.model->AdoptHeads(nullptr).ok());
  EXPECT_EQ(swapped.model->self_drafter(), nullptr);
  EXPECT_LT(swapped.model->weight_bytes(), bytes);
}

TEST_F(HeadsSwapCudaTest, AModelThatWasNotToldKeepsItsHeads) {
  const Loaded loaded = Load({.heads = folder_ / "medusa"});
  EXPECT_EQ(loaded.model->LoadHeads(folder_ / "eagle").status().code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace tandem::heads_swap_cuda_test
