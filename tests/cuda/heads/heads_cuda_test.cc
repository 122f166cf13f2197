// Compares heads on a GPU with heads on the CPU. Each has features of its own target.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/model/cuda/cuda_model.h"
#include "common/model/cuda/heads/cuda_heads.h"
#include "kernels/device/device_arena.h"
#include "tests/model/model_under_test.h"
#include "tests/support/random_heads.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"

namespace tandem::heads_cuda_test {
namespace {

using ::testing::HasSubstr;

constexpr size_t kVocabularySize = 99;
constexpr size_t kBlockRows = 512;  // passes are cut
constexpr size_t kContext = kBlockRows + 64;
constexpr size_t kSlots = 6;

class HeadsCudaTest : public ::testing::Test {
 protected:
  struct Loaded {
    std::unique_ptr<LanguageModel> model;
    std::unique_ptr<KvPagePool> pages;
    std::unique_ptr<KvCache> cache;

    // Takes tokens through the model, with logits of the last `num_logits`.
    void Feed(std::span<const int32_t> ids, size_t num_logits) {
      const ForwardItem item = {
          .cache = cache.get(), .token_ids = ids, .parents = {}, .num_logits = num_logits};
      const auto logits = model->Forward({&item, 1});
      ASSERT_TRUE(logits.ok()) << logits.status();
    }
    void Keep(size_t place, size_t logits_row) {
      model->self_drafter()->KeepFeature(place, logits_row);
    }
    // `transforms` are those of each second order.
    std::vector<GuessTree> Propose(const std::vector<std::pair<size_t, GuessLimits>>& wanted,
                                   const GuessTransforms* transforms = nullptr) {
      std::vector<GuessOrder> orders;
      for (const auto& [place, limits] : wanted) {
        orders.push_back({.place = place,
                          .transforms = orders.size() % 2 == 1 ? transforms : nullptr,
                          .limits = limits,
                          .tree = {}});
      }
      const absl::Status status = model->self_drafter()->Propose(orders);
      EXPECT_TRUE(status.ok()) << status;
      std::vector<GuessTree> trees;
      for (GuessOrder& order : orders) trees.push_back(std::move(order.tree));
      return trees;
    }
  };

  void SetUp() override {
    if (const std::string why = testing::WhyNoDevice(); !why.empty()) GTEST_SKIP() << why;
  }

  static testing::RandomModelSpec Model(DType dtype = DType::kF32) {
    testing::RandomModelSpec spec;
    spec.vocabulary_size = kVocabularySize;
    spec.hidden_size = 16;
    spec.num_layers = 1;
    spec.num_heads = 2;
    spec.num_kv_heads = 1;
    spec.intermediate_size = 24;
    spec.max_position_embeddings = kContext;
    spec.dtype = dtype;
    return spec;
  }
  static testing::RandomHeadsSpec Heads() {
    return {.hidden_size = 16, .vocabulary_size = kVocabularySize};
  }

  void Write(const testing::RandomModelSpec& model, const testing::RandomHeadsSpec& heads) {
    testing::WriteRandomModel(folder_ / "model", model);
    std::filesystem::remove_all(folder_ / "heads");
    testing::WriteRandomHeads(folder_ / "heads", heads);
  }
  absl::StatusOr<std::unique_ptr<CudaModel>> LoadCuda(bool exact = true) const {
    return CudaModel::Load(folder_ / "model", {.heads = folder_ / "heads",
                                               .max_slots = kSlots,
                                               .max_block_rows = kBlockRows,
                                               .spoil_freed_rows = true,
                                               .exact_activations = exact});
  }
  // Loads both models anew.
  void Load(bool exact = true) {
    for (Loaded* loaded : {&cpu_, &cuda_}) {
      loaded->cache.reset();
      loaded->pages.reset();
    }
    cpu_.model = *LanguageModel::Load(folder_ / "model", &threads_, folder_ / "heads");
    cpu_.pages = *KvPagePool::Create(cpu_.model->description(),
                                     HostKvMemory::Bytes(cpu_.model->description(), kContext));
    std::unique_ptr<CudaModel> cuda = *LoadCuda(exact);
    cuda_.pages = *cuda->TakePages();
    cuda_.model = std::move(cuda);
    for (Loaded* loaded : {&cpu_, &cuda_}) {
      loaded->cache = std::make_unique<KvCache>(loaded->pages.get(), kContext);
    }
  }

  static std::vector<int32_t> Tokens(size_t count) {
    std::vector<int32_t> ids(count);
    for (size_t i = 0; i < count; ++i) {
      ids[i] = static_cast<int32_t>((i * i * 31 + (i + 1) * 17) % kVocabularySize);
    }
    return ids;
  }

  void ExpectSameProposals(const std::vector<std::pair<size_t, GuessLimits>>& wanted,
                           double tolerance = 1e-4, const GuessTransforms* transforms = nullptr) {
    const std::vector<GuessTree> want = cpu_.Propose(wanted, transforms);
    const std::vector<GuessTree> got = cuda_.Propose(wanted, transforms);
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(got[i].token_ids, want[i].token_ids) << "order " << i;
      EXPECT_EQ(got[i].parents, want[i].parents) << "order " << i;
      ASSERT_EQ(got[i].chances.size(), want[i].chances.size()) << "order " << i;
      for (size_t node = 0; node < want[i].chances.size(); ++node) {
        EXPECT_NEAR(got[i].chances[node], want[i].chances[node], tolerance) << "order " << i;
      }
    }
  }

  // A prompt, and single tokens after it: the last of their passes are graphs.
  void CompareAfterAPromptAndSingleTokens(double tolerance = 1e-4) {
    const std::vector<int32_t> ids = Tokens(16);
    for (Loaded* loaded : {&cpu_, &cuda_}) {
      loaded->Feed(std::span(ids).first(12), 5);
      loaded->Keep(0, 4);
      loaded->Keep(1, 2);
      for (size_t i = 12; i < 16; ++i) {
        loaded->Feed(std::span(ids).subspan(i, 1), 1);
        loaded->Keep(i - 10, 0);
      }
    }
    ExpectSameProposals({{0, {3, 0}},
                         {1, {1, 4}},
                         {2, {3, 12}},
                         {3, {0, 5}},
                         {4, {9, 7}},
                         {5, {2, 0}},
                         {5, {3, 1}}},
                        tolerance);
    ExpectSameProposals({{4, {1, 0}}}, tolerance);
  }

  testing::TempDir folder_;
  ThreadPool threads_{1};
  Loaded cpu_;
  Loaded cuda_;
};

TEST_F(HeadsCudaTest, MedusaHeadsGuessAsOnTheCpu) {
  testing::RandomHeadsSpec heads = Heads();
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    heads.dtype = dtype;
    heads.num_layers = dtype == DType::kF16 ? 1 : 2;
    heads.has_bias = dtype != DType::kF16;
    heads.shares_output = dtype == DType::kF16;
    Write(Model(), heads);
    Load();
    EXPECT_EQ(cuda_.model->self_drafter()->name(), "medusa");
    EXPECT_EQ(cuda_.model->self_drafter()->max_depth(), 3u);
    CompareAfterAPromptAndSingleTokens();
  }
}

TEST_F(HeadsCudaTest, TransformsChangeGuessesAsOnTheCpu) {
  Write(Model(), Heads());
  Load();
  const std::vector<int32_t> ids = Tokens(12);
  for (Loaded* loaded : {&cpu_, &cuda_}) {
    loaded->Feed(ids, 2);
    loaded->Keep(0, 1);
    loaded->Keep(1, 0);
  }
  TokenCounts counts;
  for (int32_t id = 0; id < static_cast<int32_t>(kVocabularySize); id += 2) counts.Add(id, true);
  SamplingParams params;
  params.repetition_penalty = 1.5f;
  params.logit_bias = {{1, 2.0f}, {3, -100.0f}};
  const auto transforms = GuessTransforms::After({.params = &params,
                                                  .counts = &counts,
                                                  .newest_token_id = 9,
                                                  .num_output_tokens = 60,
                                                  .vocabulary_size = kVocabularySize});
  ASSERT_TRUE(transforms.has_value());
  const std::vector<std::pair<size_t, GuessLimits>> wanted = {
      {0, {3, 24}}, {0, {3, 24}}, {1, {3, 0}}, {1, {3, 0}}};
  ExpectSameProposals(wanted, 1e-4, &*transforms);
  const std::vector<GuessTree> trees = cuda_.Propose(wanted, &*transforms);
  EXPECT_NE(trees[0].chances, trees[1].chances);
}

TEST_F(HeadsCudaTest, ATokenMapAndRoundedActivationsAreHeeded) {
  testing::RandomHeadsSpec heads = Heads();
  heads.truncated_vocabulary_size = 37;
  Write(Model(), heads);
  Load();
  CompareAfterAPromptAndSingleTokens();

  heads.dtype = DType::kBF16;
  heads.output_scale = 0.3;
  Write(Model(), heads);
  Load(/*exact=*/false);
  const std::vector<int32_t> ids = Tokens(9);
  for (Loaded* loaded : {&cpu_, &cuda_}) {
    loaded->Feed(ids, 1);
    loaded->Keep(0, 0);
  }
  const std::vector<GuessTree> exact = cpu_.Propose({{0, {3, 0}}});
  const std::vector<GuessTree> rounded = cuda_.Propose({{0, {3, 0}}});
  EXPECT_NE(rounded[0].chances, exact[0].chances);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(rounded[0].chances[i], exact[0].chances[i], 1e-2);
  }
}

TEST_F(HeadsCudaTest, BlockwiseHeadsUseTheTargetsOutputProduct) {
  testing::RandomHeadsSpec heads = Heads();
  heads.shares_output = heads.uses_target_output = true;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    // Heads in F32 before an output product in BF16 too.
    testing::RandomModelSpec model = Model(dtype);
    model.tied_embeddings = dtype == DType::kF32;
    Write(model, heads);
    Load();
    EXPECT_EQ(cuda_.model->self_drafter()->name(), "blockwise");
    const SelfDrafter& drafter = *cuda_.model->self_drafter();
    EXPECT_EQ(drafter.weight_bytes(), 3 * DeviceArena::Rounded(16 * 16 * sizeof(float)));
    // The CPU's keys and values are F32, and those of the GPU are BF16 like the weights.
    if (dtype == DType::kF32) CompareAfterAPromptAndSingleTokens();
  }
  const std::vector<int32_t> one = Tokens(1);  // attends to itself alone
  for (Loaded* loaded : {&cpu_, &cuda_}) {
    loaded->Feed(one, 1);
    loaded->Keep(0, 0);
  }
  ExpectSameProposals({{0, {3, 0}}}, 2e-2);
}

TEST_F(HeadsCudaTest, ATreeDependsOnItsOwnOrderAlone) {
  Write(Model(), Heads());
  Load();
  const std::vector<int32_t> ids = Tokens(12);
  cuda_.Feed(ids, kSlots);
  for (size_t place = 0; place < kSlots; ++place) cuda_.Keep(place, place);
  // The rows of three heads do not fit together, so they are computed in two parts.
  std::vector<std::pair<size_t, GuessLimits>> wanted;
  for (uint32_t i = 0; i < 90; ++i) wanted.push_back({i % kSlots, {1 + i % 3, i % 7}});
  ASSERT_GT(3 * wanted.size(), CudaHeads::kMaxRows);
  const std::vector<GuessTree> together = cuda_.Propose(wanted);
  for (const size_t i : {0, 1, 2, 17, 84, 85, 86, 89}) {
    const GuessTree alone = cuda_.Propose({wanted[i]})[0];
    EXPECT_EQ(together[i].token_ids, alone.token_ids);
    EXPECT_EQ(together[i].parents, alone.parents);
    EXPECT_EQ(together[i].chances, alone.chances);
  }
}

TEST_F(HeadsCudaTest, FeaturesOfSeveralBlocksAreKept) {
  Write(Model(), Heads());
  Load();
  const std::vector<int32_t> ids = Tokens(kBlockRows + 40);
  for (Loaded* loaded : {&cpu_, &cuda_}) {
    loaded->Feed(ids, 100);  // 60 of them in the first block
    loaded->Keep(0, 0);
    loaded->Keep(1, 59);
    loaded->Keep(2, 60);
    loaded->Keep(3, 99);
  }
  ExpectSameProposals({{0, {3, 4}}, {1, {3, 4}}, {2, {3, 4}}, {3, {3, 4}}}, 1e-3);
}

TEST_F(HeadsCudaTest, ARowThatIsNotFiniteGivesNoGuesses) {
  testing::RandomHeadsSpec heads = Heads();
  heads.output_scale = 1e38;
  Write(Model(), heads);
  Load();
  const std::vector<int32_t> ids = Tokens(3);
  for (Loaded* loaded : {&cpu_, &cuda_}) {
    loaded->Feed(ids, 1);
    loaded->Keep(0, 0);
  }
  ExpectSameProposals({{0, {3, 4}}});
  EXPECT_TRUE(cuda_.Propose({{0, {3, 4}}})[0].token_ids.empty());
  EXPECT_TRUE(cuda_.model->self_drafter()->Propose({}).ok());
}

TEST_F(HeadsCudaTest, WeightsCountAndErrorsNameTheFileAndTheTensor) {
  Write(Model(), Heads());
  std::vector<uint64_t> done;
  uint64_t whole = 0;
  const auto model =
      CudaModel::Load(folder_ / "model", {.heads = folder_ / "heads",
                                          .max_slots = 1,
                                          .on_progress = [&](uint64_t so_far, uint64_t all) {
                                            done.push_back(so_far);
                                            whole = all;
                                          }});
  ASSERT_TRUE(model.ok()) << model.status();
  const auto bare = CudaModel::Load(folder_ / "model", {.max_slots = 1});
  EXPECT_EQ((*bare)->self_drafter(), nullptr);
  EXPECT_EQ((*model)->weight_bytes(),
            (*bare)->weight_bytes() + (*model)->self_drafter()->weight_bytes());
  EXPECT_GE((*model)->self_drafter()->weight_bytes(), 3 * (16 + kVocabularySize) * 16 * 4);
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_GT(done.back(), (*bare)->weight_bytes());
  EXPECT_EQ(whole, (*model)->weight_bytes());

  testing::RandomHeadsSpec other = Heads();
  other.hidden_size = 24;
  Write(Model(), other);
  EXPECT_THAT(std::string(LoadCuda().status().message()),
              HasSubstr("heads/config.json: hidden_size is 24, the target has 16"));
  other = Heads();
  other.num_heads = 2;
  Write(Model(), other);
  const std::filesystem::path weights = folder_ / "heads" / "model.safetensors";
  std::filesystem::rename(weights, folder_ / "two");
  Write(Model(), Heads());
  std::filesystem::rename(folder_ / "two", weights);
  const std::string missing(LoadCuda().status().message());
  EXPECT_THAT(missing, HasSubstr("heads/model.safetensors"));
  EXPECT_THAT(missing, HasSubstr("blocks.2.layers.0.weight"));
}

}  // namespace
}  // namespace tandem::heads_cuda_test
