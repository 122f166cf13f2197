// Tests a layer of EAGLE on a GPU: it guesses what the layer on the CPU guesses, and its guesses do
// not depend on the path on which a text came.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/model/cuda/cuda_model.h"
#include "tests/model/model_under_test.h"
#include "tests/support/random_heads.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"

namespace tandem {
// Found by EXPECT_EQ.
static bool operator==(const GuessTree& a, const GuessTree& b) {
  return a.token_ids == b.token_ids && a.parents == b.parents && a.chances == b.chances;
}
}  // namespace tandem

namespace tandem::eagle_cuda_test {
namespace {

using ::testing::HasSubstr;

constexpr size_t kVocabularySize = 60;
constexpr size_t kBlockRows = 512;  // passes are cut
constexpr size_t kContext = kBlockRows + 128;
constexpr GuessLimits kLimits = {.depth = 4, .nodes = 12};

std::vector<int32_t> Text(size_t length) {
  std::vector<int32_t> ids(length);
  for (size_t i = 0; i < length; ++i) {
    ids[i] = static_cast<int32_t>((i * i * 31 + (i + 1) * 17) % kVocabularySize);
  }
  return ids;
}

class EagleCudaTest : public ::testing::Test {
 protected:
  // A model with its pages.
  struct Loaded {
    std::unique_ptr<LanguageModel> model;
    std::unique_ptr<KvPagePool> pages;

    SelfDrafter& eagle() const { return *model->self_drafter(); }
    std::unique_ptr<KvCache> NewCache() const {
      return std::make_unique<KvCache>(pages.get(), kContext);
    }
    // Returns the last row of logits.
    std::vector<float> Feed(KvCache& cache, std::span<const int32_t> ids,
                            std::span<const int32_t> parents = {}) const {
      const ForwardItem item = {
          .cache = &cache, .token_ids = ids, .parents = parents, .num_logits = 1};
      const auto logits = model->Forward({&item, 1});
      EXPECT_TRUE(logits.ok()) << logits.status();
      return {logits->row(0), logits->row(0) + kVocabularySize};
    }
    void CatchUp(KvCache& cache, std::span<const int32_t> text) const {
      const TextRows rows = {&cache, text};
      const absl::Status status = eagle().CatchUp({&rows, 1});
      EXPECT_TRUE(status.ok()) << status;
    }
    GuessTree Guess(KvCache& cache, std::span<const int32_t> text, int32_t next,
                    const GuessLimits& limits = kLimits) const {
      CatchUp(cache, text);
      GuessOrder order = {
          .text = {&cache, text}, .next_token_id = next, .limits = limits, .tree = {}};
      const absl::Status status = eagle().Propose({&order, 1});
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_EQ(cache.length(), text.size());
      return std::move(order.tree);
    }
  };

  void SetUp() override {
    if (const std::string why = testing::WhyNoDevice(); !why.empty()) GTEST_SKIP() << why;
  }

  // A target of several layers, so that a pass of EAGLE costs little, and unlikely paths grow too.
  static testing::RandomModelSpec Target() {
    testing::RandomModelSpec spec;
    spec.vocabulary_size = kVocabularySize;
    spec.hidden_size = 16;
    spec.num_layers = 2;
    spec.num_heads = 2;
    spec.num_kv_heads = 1;
    spec.head_size = 8;
    spec.intermediate_size = 64;
    spec.max_position_embeddings = kContext;
    return spec;
  }
  static testing::RandomEagleSpec Layer() {
    return {.hidden_size = 16,
            .vocabulary_size = kVocabularySize,
            .num_heads = 3,  // more than the target's
            .num_kv_heads = 1,
            .head_size = 8,
            .intermediate_size = 8,
            .output_scale = 2.0};
  }

  // A layer of EAGLE-3 that knows some of the tokens. It reads the target's embedding and what its
  // last layer leaves.
  static testing::RandomEagleSpec ThirdLayer() {
    testing::RandomEagleSpec layer = Layer();
    layer.is_third = true;
    layer.truncated_vocabulary_size = 44;
    layer.layer_ids = {0, 2, 1};
    layer.output_scale = 1.5;
    return layer;
  }

  void Write(const testing::RandomModelSpec& target, const testing::RandomEagleSpec& layer) {
    testing::WriteRandomModel(folder_ / "model", target);
    testing::WriteRandomEagle(folder_ / "heads", layer);
  }
  absl::StatusOr<std::unique_ptr<CudaModel>> LoadCuda(CudaModelOptions options = {}) const {
    options.heads = folder_ / "heads";
    options.max_slots = 16;
    options.max_block_rows = kBlockRows;
    options.spoil_freed_rows = true;
    return CudaModel::Load(folder_ / "model", std::move(options));
  }
  void LoadGpu(bool exact = true) {
    gpu_.pages.reset();
    auto model = LoadCuda({.exact_activations = exact});
    ASSERT_TRUE(model.ok()) << model.status();
    gpu_.pages = *(*model)->TakePages();
    gpu_.model = *std::move(model);
  }
  void LoadBoth(bool exact = true) {
    LoadGpu(exact);
    cpu_.pages.reset();
    cpu_.model = *LanguageModel::Load(folder_ / "model", &threads_, folder_ / "heads");
    cpu_.pages = *KvPagePool::Create(cpu_.model->kv_shape(), uint64_t{1} << 24);
  }

  void ExpectNear(const GuessTree& got, const GuessTree& want, const std::string& what) {
    EXPECT_EQ(got.token_ids, want.token_ids) << what;
    EXPECT_EQ(got.parents, want.parents) << what;
    ASSERT_EQ(got.chances.size(), want.chances.size()) << what;
    for (size_t node = 0; node < want.chances.size(); ++node) {
      EXPECT_NEAR(got.chances[node], want.chances[node], 1e-3) << what << ", node " << node;
    }
  }

  testing::TempDir folder_;
  ThreadPool threads_{1};
  Loaded cpu_;
  Loaded gpu_;
};

TEST_F(EagleCudaTest, GuessesAsOnTheCpu) {
  testing::RandomEagleSpec layer = Layer();
  for (const bool is_own : {true, false}) {
    layer.has_bias = is_own;
    layer.has_output = is_own;
    Write(Target(), layer);
    LoadBoth();
    EXPECT_EQ(gpu_.eagle().name(), "eagle");
    EXPECT_EQ(gpu_.model->kv_shape().num_layers, 3u);
    EXPECT_EQ(gpu_.model->kv_shape().feature_floats, 16u);
    size_t num_deep = 0;
    const auto lengths = is_own ? std::vector<size_t>{1, 63, 65} : std::vector<size_t>{2, 64};
    for (const size_t length : lengths) {
      const std::vector<int32_t> text = Text(length);
      const auto on_cpu = cpu_.NewCache();
      const auto on_gpu = gpu_.NewCache();
      cpu_.Feed(*on_cpu, text);
      gpu_.Feed(*on_gpu, text);
      for (const GuessLimits& limits : {kLimits, GuessLimits{.depth = 3, .nodes = 0}}) {
        const GuessTree want = cpu_.Guess(*on_cpu, text, 7, limits);
        ExpectNear(gpu_.Guess(*on_gpu, text, 7, limits), want, std::to_string(length));
        num_deep += static_cast<size_t>(std::count_if(want.parents.begin(), want.parents.end(),
                                                      [](int32_t p) { return p > 0; }));
      }
    }
    EXPECT_GT(num_deep, 2u) << "trees have branches below the first one";
  }
}

TEST_F(EagleCudaTest, ALayerOfEagle3GuessesAsOnTheCpu) {
  testing::RandomEagleSpec layer = ThirdLayer();
  size_t num_deep = 0;
  for (const bool is_own : {true, false}) {
    layer.has_output = is_own;
    if (!is_own) layer.truncated_vocabulary_size = 0;
    Write(Target(), layer);
    LoadBoth();
    EXPECT_EQ(gpu_.model->kv_shape().feature_floats, 48u);
    for (const size_t length : is_own ? std::vector<size_t>{1, 65} : std::vector<size_t>{3}) {
      const std::vector<int32_t> text = Text(length);
      const auto on_cpu = cpu_.NewCache();
      const auto on_gpu = gpu_.NewCache();
      cpu_.Feed(*on_cpu, text);
      gpu_.Feed(*on_gpu, text);
      const GuessTree want = cpu_.Guess(*on_cpu, text, 7);
      ExpectNear(gpu_.Guess(*on_gpu, text, 7), want, std::to_string(length));
      num_deep += static_cast<size_t>(
          std::count_if(want.parents.begin(), want.parents.end(), [](int32_t p) { return p > 0; }));
    }
  }
  EXPECT_GT(num_deep, 2u) << "trees have branches below the first one";
}

TEST_F(EagleCudaTest, ATargetWithoutSomeLayersGuessesAsOnTheCpu) {
  testing::RandomModelSpec target = Target();
  target.num_layers = 3;
  target.embedding_scale = 0.5;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    target.dtype = dtype;
    testing::WriteRandomModel(folder_ / "model", target);
    testing::WriteSkippedLayers(folder_ / "heads", {1}, 3);
    LoadBoth();
    EXPECT_EQ(gpu_.eagle().name(), "layer_skip");
    EXPECT_EQ(gpu_.model->kv_shape().num_layers, 3u);
    const std::vector<int32_t> text = Text(66);
    const auto on_cpu = cpu_.NewCache();
    const auto on_gpu = gpu_.NewCache();
    cpu_.Feed(*on_cpu, text);
    gpu_.Feed(*on_gpu, text);
    const GuessLimits limits = {.depth = 3, .nodes = dtype == DType::kF32 ? 16u : 0u};
    const GuessTree want = cpu_.Guess(*on_cpu, text, 7, limits);
    EXPECT_GE(want.token_ids.size(), 1u);
    const GuessTree got = gpu_.Guess(*on_gpu, text, 7, limits);
    EXPECT_EQ(got.token_ids, want.token_ids);
    EXPECT_EQ(got.parents, want.parents);
    for (size_t i = 0; i < std::min(got.chances.size(), want.chances.size()); ++i) {
      EXPECT_NEAR(got.chances[i], want.chances[i], dtype == DType::kF32 ? 1e-3 : 3e-2);
    }
    // The target goes on as if nobody had guessed.
    const std::vector<int32_t> next = {7};
    const auto alone = gpu_.NewCache();
    gpu_.Feed(*alone, text);
    EXPECT_EQ(gpu_.Feed(*on_gpu, next), gpu_.Feed(*alone, next));
  }
}

TEST_F(EagleCudaTest, LookAheadRowsGuessAsOnTheCpu) {
  testing::RandomModelSpec target = Target();
  target.num_layers = 3;
  target.embedding_scale = 0.5;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    target.dtype = dtype;
    testing::WriteRandomModel(folder_ / "model", target);
    testing::WriteRandomLookAhead(folder_ / "heads",
                                  {.hidden_size = 16, .dtype = dtype, .deviation = 0.5});
    LoadBoth();
    EXPECT_EQ(gpu_.eagle().name(), "pass");
    EXPECT_EQ(gpu_.eagle().max_depth(), 4u);
    EXPECT_EQ(gpu_.model->kv_shape().num_layers, 3u);
    EXPECT_GE(gpu_.eagle().weight_bytes(), 3 * 16 * SizeOf(dtype));
    // Two orders of one call, whose rows lie on the edge of a page, and behind it.
    std::vector<std::vector<int32_t>> texts = {Text(62), Text(66)};
    std::vector<std::unique_ptr<KvCache>> caches;
    std::vector<GuessOrder> orders(2);
    for (size_t i = 0; i < 2; ++i) {
      caches.push_back(gpu_.NewCache());
      gpu_.Feed(*caches[i], texts[i]);
      orders[i].text = {caches[i].get(), texts[i]};
      orders[i].next_token_id = 7;
      orders[i].limits = {.depth = 4, .nodes = dtype == DType::kF32 ? 16u : 0u};
    }
    const absl::Status status = gpu_.eagle().Propose(orders);
    ASSERT_TRUE(status.ok()) << status;
    for (size_t i = 0; i < 2; ++i) {
      const auto on_cpu = cpu_.NewCache();
      cpu_.Feed(*on_cpu, texts[i]);
      const GuessTree want = cpu_.Guess(*on_cpu, texts[i], 7, orders[i].limits);
      const GuessTree& got = orders[i].tree;
      EXPECT_EQ(want.token_ids.size(), dtype == DType::kF32 ? 16u : 4u);
      EXPECT_EQ(got.token_ids, want.token_ids) << i;
      EXPECT_EQ(got.parents, want.parents) << i;
      for (size_t node = 0; node < std::min(got.chances.size(), want.chances.size()); ++node) {
        EXPECT_NEAR(got.chances[node], want.chances[node], dtype == DType::kF32 ? 1e-3 : 3e-2);
      }
      EXPECT_EQ(gpu_.Guess(*caches[i], texts[i], 7, orders[i].limits), got) << "alone, " << i;
      // The target goes on as if nobody had guessed.
      const std::vector<int32_t> next = {7};
      const auto alone = gpu_.NewCache();
      gpu_.Feed(*alone, texts[i]);
      EXPECT_EQ(gpu_.Feed(*caches[i], next), gpu_.Feed(*alone, next));
    }
  }
}

// Rounded weights, pages and activations: an offset that is wrong moves chances by far more.
TEST_F(EagleCudaTest, OtherTypesOfWeightsGuessAboutTheSame) {
  const std::vector<int32_t> text = Text(40);
  for (const auto& [target_type, layer_type] : {std::pair{DType::kBF16, DType::kBF16},
                                                {DType::kBF16, DType::kF32},
                                                {DType::kF16, DType::kF16}}) {
    testing::RandomModelSpec target = Target();
    target.dtype = target_type;
    for (const auto& [is_exact, is_third] :
         {std::pair{true, false}, {false, false}, {true, true}, {false, true}}) {
      testing::RandomEagleSpec layer = is_third ? ThirdLayer() : Layer();
      layer.dtype = layer_type;
      layer.output_scale = is_third ? 0.15 : 0.5;
      Write(target, layer);
      LoadBoth(is_exact);
      const auto on_cpu = cpu_.NewCache();
      const auto on_gpu = gpu_.NewCache();
      cpu_.Feed(*on_cpu, text);
      gpu_.Feed(*on_gpu, text);
      const GuessLimits all = {.depth = 1, .nodes = kVocabularySize};
      const GuessTree want = cpu_.Guess(*on_cpu, text, 7, all);
      const GuessTree got = gpu_.Guess(*on_gpu, text, 7, all);
      ASSERT_EQ(got.chances.size(), want.chances.size());
      for (size_t i = 0; i < got.chances.size(); ++i) {
        EXPECT_NEAR(got.chances[i], want.chances[i], 0.03 * want.chances[i])
            << Name(target_type) << ' ' << is_exact << ' ' << is_third;
      }
      const GuessLimits chain = {.depth = 3, .nodes = 0};
      EXPECT_EQ(gpu_.Guess(*on_gpu, text, 7, chain).token_ids,
                cpu_.Guess(*on_cpu, text, 7, chain).token_ids)
          << Name(target_type) << ' ' << is_exact << ' ' << is_third;
    }
  }
}

TEST_F(EagleCudaTest, TextsOfSeveralBlocksAndPassesGuessAsOnTheCpu) {
  testing::RandomModelSpec target = Target();
  target.num_layers = 1;
  Write(target, Layer());
  LoadBoth();
  const std::vector<int32_t> text = Text(kBlockRows + 10);
  const auto on_cpu = cpu_.NewCache();
  const auto on_gpu = gpu_.NewCache();
  cpu_.Feed(*on_cpu, text);
  gpu_.Feed(*on_gpu, text);
  const GuessTree want = cpu_.Guess(*on_cpu, text, 7);
  EXPECT_FALSE(want.token_ids.empty());
  ExpectNear(gpu_.Guess(*on_gpu, text, 7), want, "a long text");
}

TEST_F(EagleCudaTest, AGuessDoesNotDependOnHowTheTextCame) {
  Write(Target(), ThirdLayer());
  LoadGpu();
  const std::vector<int32_t> text = Text(72);
  const auto whole = gpu_.NewCache();
  gpu_.Feed(*whole, text);
  const GuessTree expected = gpu_.Guess(*whole, text, 9);
  ASSERT_EQ(expected.token_ids.size(), kLimits.nodes);
  EXPECT_EQ(gpu_.Guess(*whole, text, 9), expected) << "repeated";

  // Token by token at the end, as graphs, with proposals in between.
  const auto slow = gpu_.NewCache();
  gpu_.Feed(*slow, std::span(text).first(61));
  for (size_t i = 61; i < text.size(); ++i) {
    const std::span<const int32_t> so_far = std::span(text).first(i + 1);
    gpu_.Feed(*slow, so_far.last(1));
    if (i % 4 == 0) (void)gpu_.Guess(*slow, so_far, 5, {.depth = 2, .nodes = 4});
  }
  EXPECT_EQ(gpu_.Guess(*slow, text, 9), expected);

  // In pieces, with a tree of which a path was kept.
  const auto kept = gpu_.NewCache();
  gpu_.Feed(*kept, std::span(text).first(62));
  (void)gpu_.Guess(*kept, std::span(text).first(62), text[62]);
  const std::vector<int32_t> tree = {text[62], 3, text[63], 4, text[64]};
  gpu_.Feed(*kept, tree, std::vector<int32_t>{-1, 0, 0, 1, 2});
  ASSERT_TRUE(kept->KeepPath(62, std::vector<int32_t>{0, 2, 4}).ok());
  gpu_.Feed(*kept, std::span(text).subspan(65));
  EXPECT_EQ(gpu_.Guess(*kept, text, 9), expected);

  // Rolled back, within a page and to its beginning, after other tokens.
  for (const size_t common : {30, 64}) {
    const auto rolled = gpu_.NewCache();
    std::vector<int32_t> other(text.begin(), text.begin() + static_cast<ptrdiff_t>(common));
    other.resize(70, 3);
    gpu_.Feed(*rolled, other);
    (void)gpu_.Guess(*rolled, other, 1);
    rolled->TruncateTo(common);
    gpu_.Feed(*rolled, std::span(text).subspan(common));
    EXPECT_EQ(gpu_.Guess(*rolled, text, 9), expected) << common;
  }
}

TEST_F(EagleCudaTest, PagesThatAreSharedOrCopiedBringItsRows) {
  Write(Target(), Layer());
  LoadGpu();
  const std::vector<int32_t> text = Text(76);
  const auto first = gpu_.NewCache();
  gpu_.Feed(*first, text);
  const GuessTree expected = gpu_.Guess(*first, text, 9);
  first->Publish(0, {1});

  std::vector<KvPage> found;
  found.push_back(gpu_.pages->Find({1}));
  const auto second = gpu_.NewCache();
  ASSERT_TRUE(second->Extend(0, std::move(found), 12).ok());
  EXPECT_EQ(second->NumDrafterRows(), kPageRows);
  gpu_.Feed(*second, std::span(text).subspan(kPageRows));
  EXPECT_EQ(gpu_.Guess(*second, text, 9), expected);

  // Who writes to a page that others hold gets a copy of it.
  second->TruncateTo(50);
  gpu_.Feed(*second, std::span(text).subspan(50));
  EXPECT_EQ(gpu_.Guess(*second, text, 9), expected);
  EXPECT_EQ(gpu_.Guess(*first, text, 9), expected) << "the first one's pages are as they were";
}

TEST_F(EagleCudaTest, ATreeDependsOnItsOwnOrderAlone) {
  Write(Target(), Layer());
  LoadGpu();
  const GuessLimits wide = {.depth = 6, .nodes = 32};
  constexpr size_t kOrders = 8;
  std::vector<std::vector<int32_t>> texts;
  std::vector<std::unique_ptr<KvCache>> caches;
  std::vector<GuessOrder> orders(kOrders);
  for (size_t i = 0; i < kOrders; ++i) {
    texts.push_back(Text(3 + i));
    caches.push_back(gpu_.NewCache());
    gpu_.Feed(*caches[i], texts[i]);
    orders[i].text = {caches[i].get(), texts[i]};
    orders[i].next_token_id = static_cast<int32_t>(i);
    orders[i].limits = i % 4 == 2 ? GuessLimits{.depth = 3, .nodes = 0} : wide;
  }
  orders[5].limits.depth = 0;
  const absl::Status status = gpu_.eagle().Propose(orders);
  ASSERT_TRUE(status.ok()) << status;
  for (const size_t i : {0, 2, 7}) {
    EXPECT_FALSE(orders[i].tree.token_ids.empty()) << i;
    EXPECT_EQ(gpu_.Guess(*caches[i], texts[i], static_cast<int32_t>(i), orders[i].limits),
              orders[i].tree)
        << i;
  }
  EXPECT_TRUE(orders[5].tree.token_ids.empty());
}

TEST_F(EagleCudaTest, LogitsAreThoseOfAModelWithoutHeads) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    testing::RandomModelSpec target = Target();
    target.num_layers = 1;
    target.dtype = dtype;
    testing::RandomEagleSpec layer = dtype == DType::kF32 ? Layer() : ThirdLayer();
    if (dtype != DType::kF32) layer.layer_ids = {0, 1};
    layer.dtype = dtype;
    Write(target, layer);
    LoadGpu();
    auto bare = *CudaModel::Load(folder_ / "model", {.max_slots = 1, .spoil_freed_rows = true});
    Loaded plain;
    plain.pages = *bare->TakePages();
    plain.model = std::move(bare);
    const auto with = gpu_.NewCache();
    const auto without = plain.NewCache();
    const std::vector<int32_t> text = Text(90);
    for (const auto& [begin, end] :
         {std::pair<size_t, size_t>{0, 70}, {70, 71}, {71, 72}, {72, 73}, {73, 90}}) {
      const std::span<const int32_t> part = std::span(text).subspan(begin, end - begin);
      EXPECT_EQ(gpu_.Feed(*with, part), plain.Feed(*without, part)) << begin;
      EXPECT_FALSE(gpu_.Guess(*with, std::span(text).first(end), 4).token_ids.empty());
    }
  }
}

TEST_F(EagleCudaTest, WeightsCountAndErrorsNameTheFileAndTheField) {
  Write(Target(), Layer());
  uint64_t last = 0;
  uint64_t whole = 0;
  const auto model = LoadCuda({.on_progress = [&](uint64_t so_far, uint64_t all) {
    last = so_far;
    whole = all;
  }});
  ASSERT_TRUE(model.ok()) << model.status();
  const auto bare = CudaModel::Load(folder_ / "model", {.max_slots = 1});
  EXPECT_EQ((*model)->weight_bytes(),
            (*bare)->weight_bytes() + (*model)->self_drafter()->weight_bytes());
  EXPECT_GE((*model)->self_drafter()->weight_bytes(), (2 * 16 * 16 + 60 * 16 + 3 * 16 * 8) * 4);
  EXPECT_EQ(whole, (*model)->weight_bytes());
  EXPECT_GT(last, (*bare)->weight_bytes());

  Write(Target(), ThirdLayer());
  ASSERT_TRUE(LoadCuda().ok()) << "its norms have room";
  testing::RandomEagleSpec other = Layer();
  other.intermediate_size = 41;
  Write(Target(), other);
  EXPECT_THAT(std::string(LoadCuda().status().message()),
              HasSubstr("heads/config.json: intermediate_size is 41: on a GPU it must be"));
  other = Layer();
  other.hidden_size = 24;
  Write(Target(), other);
  EXPECT_THAT(std::string(LoadCuda().status().message()),
              HasSubstr("heads/config.json: hidden_size is 24, the target has 16"));
}

}  // namespace
}  // namespace tandem::eagle_cuda_test
