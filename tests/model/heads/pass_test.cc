// Tests a target that drafts with look-ahead rows (PaSS). A row whose embedding is that of a token
// must guess what the target expects after that token.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/model/checkpoint/checkpoint.h"
#include "common/model/heads/pass/look_ahead_drafter.h"
#include "common/model/kv/kv_page_pool.h"
#include "common/model/language_model.h"
#include "nlohmann/json.hpp"
#include "tests/model/heads/feed.h"
#include "tests/support/random_heads.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"

namespace tandem {
// Found by EXPECT_EQ.
static bool operator==(const GuessTree& a, const GuessTree& b) {
  return a.token_ids == b.token_ids && a.parents == b.parents && a.chances == b.chances;
}
}  // namespace tandem

namespace tandem::pass_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::Feed;
using ::testing::HasSubstr;

constexpr size_t kVocabularySize = 64;
constexpr int32_t kNewest = 17;

std::vector<int32_t> RandomText(size_t length) {
  std::vector<int32_t> text;
  for (size_t i = 0; i < length; ++i) text.push_back(static_cast<int32_t>((i * 41 + i * i) % 62));
  return text;
}

std::vector<double> Softmax(const std::vector<float>& logits) {
  std::vector<double> chances(logits.begin(), logits.end());
  const double max = *std::max_element(chances.begin(), chances.end());
  double sum = 0;
  for (double& chance : chances) sum += chance = std::exp(chance - max);
  for (double& chance : chances) chance /= sum;
  return chances;
}

class PassTest : public ::testing::Test {
 protected:
  void SetUp() override { WriteTarget(DType::kF32); }

  void WriteTarget(DType dtype) {
    testing::WriteRandomModel(dir_ / "target", {.num_layers = 3, .dtype = dtype});
  }
  // Writes look-ahead embeddings that are those of these tokens of the target, bit for bit.
  void WriteTokensAsLookAhead(std::span<const int32_t> token_ids) {
    const auto target = *Checkpoint::Open(dir_ / "target");
    const Tensor& table = **target->Get("model.embed_tokens.weight");
    const size_t row_bytes = table.bytes / kVocabularySize;
    const size_t bytes = token_ids.size() * row_bytes;
    std::string header = nlohmann::json{{"lookahead.weight",
                                         {{"dtype", table.dtype},
                                          {"shape", {token_ids.size(), 32}},
                                          {"data_offsets", {0, bytes}}}}}
                             .dump();
    header.resize((header.size() + 7) / 8 * 8, ' ');
    WriteConfig(static_cast<int64_t>(token_ids.size()), 32);
    std::ofstream file(dir_ / "heads" / "model.safetensors", std::ios::binary);
    const uint64_t length = header.size();
    file.write(reinterpret_cast<const char*>(&length), sizeof(length));
    file << header;
    for (const int32_t id : token_ids) {
      file.write(static_cast<const char*>(table.data) + static_cast<size_t>(id) * row_bytes,
                 static_cast<std::streamsize>(row_bytes));
    }
    ASSERT_TRUE(file.flush().good());
  }
  void WriteConfig(const nlohmann::json& rows, const nlohmann::json& hidden) {
    std::filesystem::create_directories(dir_ / "heads");
    std::ofstream(dir_ / "heads" / "config.json")
        << nlohmann::json{{"num_lookahead_tokens", rows}, {"hidden_size", hidden}};
  }

  absl::StatusOr<std::unique_ptr<LanguageModel>> Load() {
    return LanguageModel::Load(dir_ / "target", &threads_, dir_ / "heads");
  }
  std::string Refusal() { return std::string(Load().status().message()); }
  void LoadRandom(size_t num_rows) {
    testing::WriteRandomLookAhead(dir_ / "heads", {.num_rows = num_rows});
    model_ = *Load();
    pages_ = *KvPagePool::Create(model_->kv_shape(), uint64_t{1} << 26);
  }

  static GuessTree Guess(LanguageModel& model, KvCache& cache, std::span<const int32_t> text,
                         const GuessLimits& limits, double temperature = 1) {
    GuessOrder order = {.text = {&cache, text},
                        .next_token_id = kNewest,
                        .temperature = temperature,
                        .limits = limits,
                        .tree = {}};
    EXPECT_TRUE(model.self_drafter()->CatchUp({&order.text, 1}).ok());
    EXPECT_TRUE(model.self_drafter()->Propose({&order, 1}).ok());
    EXPECT_EQ(cache.length(), text.size());
    return std::move(order.tree);
  }
  GuessTree Guess(KvCache& cache, std::span<const int32_t> text, const GuessLimits& limits,
                  double temperature = 1) {
    return Guess(*model_, cache, text, limits, temperature);
  }

  testing::TempDir dir_;
  ThreadPool threads_{2};
  std::unique_ptr<LanguageModel> model_;
  std::unique_ptr<KvPagePool> pages_;
};

// ---------------------------------------------------------------- what rows guess

TEST_F(PassTest, RowsGuessWhatTheTargetExpectsAfterTheirEmbeddings) {
  const std::vector<int32_t> ahead = {20, 5, 31};
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    WriteTarget(dtype);
    WriteTokensAsLookAhead(ahead);
    const auto model = *Load();
    EXPECT_EQ(model->self_drafter()->name(), "pass");
    EXPECT_EQ(model->self_drafter()->max_depth(), 4u);
    EXPECT_GE(model->self_drafter()->weight_bytes(), 3 * 32 * SizeOf(dtype));
    EXPECT_EQ(model->kv_shape().num_layers, 3u);
    EXPECT_EQ(model->kv_shape().feature_floats, 0u);
    const auto pages = *KvPagePool::Create(model->kv_shape(), uint64_t{1} << 26);
    for (const size_t length : {1, 62, 63, 64, 150}) {
      const std::vector<int32_t> text = RandomText(length);
      KvCache cache(pages.get(), 512);
      Feed(*model, cache, text);
      const GuessTree tree = Guess(*model, cache, text, {.depth = 4, .nodes = 48});
      const GuessTree chain = Guess(*model, cache, text, {.depth = 4, .nodes = 0});
      ASSERT_EQ(chain.token_ids.size(), 4u);
      KvCache reference(pages.get(), 512);
      Feed(*model, reference, text);
      std::vector<std::vector<double>> chances;  // [depth][token]
      chances.push_back(Softmax(Feed(*model, reference, {{kNewest}})));
      for (const int32_t id : ahead) chances.push_back(Softmax(Feed(*model, reference, {{id}})));
      const std::string what = std::string(Name(dtype)) + ", length " + std::to_string(length);
      for (size_t depth = 0; depth < 4; ++depth) {
        const auto likeliest = std::max_element(chances[depth].begin(), chances[depth].end());
        EXPECT_EQ(chain.token_ids[depth], likeliest - chances[depth].begin()) << what;
        EXPECT_NEAR(chain.chances[depth], *likeliest, 1e-5) << what;
      }
      std::vector<size_t> depths;
      for (size_t node = 0; node < tree.token_ids.size(); ++node) {
        const int32_t parent = tree.parents[node];
        depths.push_back(parent < 0 ? 0 : depths[static_cast<size_t>(parent)] + 1);
        const double want = chances[depths[node]][static_cast<size_t>(tree.token_ids[node])];
        EXPECT_NEAR(tree.chances[node], want, 1e-5) << what << ", node " << node;
      }
      EXPECT_EQ(*std::max_element(depths.begin(), depths.end()), 3u) << what;
      EXPECT_GT(std::count(depths.begin(), depths.end(), 3u), 1) << "a tree has siblings";
    }
  }
}

TEST_F(PassTest, AGreedyTargetSurelyTakesTheFirstGuess) {
  LoadRandom(2);
  const std::vector<int32_t> text = RandomText(40);
  KvCache cache(pages_.get(), 512);
  Feed(*model_, cache, text);
  const GuessTree tree = Guess(cache, text, {.depth = 3, .nodes = 8}, 0);
  ASSERT_EQ(tree.token_ids.size(), 8u);
  EXPECT_EQ(tree.chances[0], 1);
  EXPECT_EQ(std::count(tree.parents.begin(), tree.parents.end(), -1), 1) << "it has no siblings";
  const std::vector<float> logits = Feed(*model_, cache, {{kNewest}});
  EXPECT_EQ(tree.token_ids[0], std::max_element(logits.begin(), logits.end()) - logits.begin());
  // Look-ahead rows only guess. Their chances become sharper, and not certain.
  cache.TruncateTo(text.size());
  const GuessTree warm = Guess(cache, text, {.depth = 3, .nodes = 0}, 1);
  const GuessTree cold = Guess(cache, text, {.depth = 3, .nodes = 0}, 0);
  EXPECT_EQ(cold.token_ids, warm.token_ids);
  EXPECT_GT(cold.chances[1], warm.chances[1]);
  EXPECT_LT(cold.chances[1], 1);
}

TEST_F(PassTest, ATreeKeepsItsLimits) {
  LoadRandom(3);
  const std::vector<int32_t> text = RandomText(70);
  KvCache cache(pages_.get(), 512);
  Feed(*model_, cache, text);
  const GuessTree whole = Guess(cache, text, {.depth = 4, .nodes = 0});
  for (const uint32_t depth : {0, 1, 2, 3, 4, 9}) {
    const GuessTree chain = Guess(cache, text, {.depth = depth, .nodes = 0});
    ASSERT_EQ(chain.token_ids.size(), std::min(depth, 4u));
    for (size_t i = 0; i < chain.token_ids.size(); ++i) {
      EXPECT_EQ(chain.token_ids[i], whole.token_ids[i]) << depth;
      EXPECT_EQ(chain.chances[i], whole.chances[i]) << depth;
      EXPECT_EQ(chain.parents[i], static_cast<int32_t>(i) - 1) << depth;
    }
  }
  EXPECT_EQ(Guess(cache, text, {.depth = 4, .nodes = 1}).token_ids.size(), 1u);
  EXPECT_EQ(Guess(cache, text, {.depth = 4, .nodes = 30}).token_ids.size(), 30u);
}

// ---------------------------------------------------------------- rows and orders

TEST_F(PassTest, ProposalsLeaveTheTargetAsItIs) {
  LoadRandom(3);
  const auto plain = *LanguageModel::Load(dir_ / "target", &threads_);
  const auto plain_pages = *KvPagePool::Create(plain->kv_shape(), uint64_t{1} << 26);
  KvCache with(pages_.get(), 512);
  KvCache without(plain_pages.get(), 512);
  std::vector<int32_t> text = RandomText(58);
  Feed(*model_, with, text);
  Feed(*plain, without, text);
  for (int i = 0; i < 12; ++i) {
    const GuessTree tree = Guess(with, text, {.depth = 4, .nodes = 12});
    EXPECT_EQ(tree.token_ids.size(), 12u);
    EXPECT_EQ(Guess(with, text, {.depth = 4, .nodes = 12}), tree);
    const std::vector<int32_t> next = {static_cast<int32_t>((i * 7) % 62)};
    EXPECT_EQ(Feed(*model_, with, next), Feed(*plain, without, next));
    text.push_back(next[0]);
  }
  EXPECT_EQ(with.num_pages(), without.num_pages());
}

TEST_F(PassTest, ManyOrdersGetTheTreesThatTheyGetAlone) {
  LoadRandom(5);
  constexpr size_t kOrders = 100;
  static_assert((kOrders - 2) * 6 > StepDevice::kMaxRows, "several passes are needed");
  std::vector<std::vector<int32_t>> texts;
  std::vector<std::unique_ptr<KvCache>> caches;
  std::vector<GuessOrder> orders(kOrders);
  for (size_t i = 0; i < kOrders; ++i) {
    texts.push_back(RandomText(1 + i));
    caches.push_back(std::make_unique<KvCache>(pages_.get(), 512));
    Feed(*model_, *caches[i], texts[i]);
    orders[i].text = {caches[i].get(), texts[i]};
    orders[i].next_token_id = kNewest;
    orders[i].temperature = i % 3 == 0 ? 0 : 1;
    orders[i].limits = {.depth = 6, .nodes = i % 4 == 2 ? 0u : 16u};
  }
  orders[5].limits.depth = 0;
  orders[kOrders - 1].limits.depth = 2;
  const size_t free_before = pages_->num_free();
  ASSERT_TRUE(model_->self_drafter()->Propose(orders).ok());
  EXPECT_EQ(pages_->num_free(), free_before);
  EXPECT_TRUE(orders[5].tree.token_ids.empty());
  for (size_t i = 0; i < kOrders; ++i) {
    EXPECT_EQ(orders[i].tree.token_ids.empty(), i == 5) << i;
    EXPECT_EQ(Guess(*caches[i], texts[i], orders[i].limits, orders[i].temperature), orders[i].tree)
        << i;
  }
}

TEST_F(PassTest, ATreeIsAsDeepAsThereIsRoom) {
  LoadRandom(3);
  const std::vector<int32_t> text = RandomText(62);
  KvCache wide(pages_.get(), 512);
  Feed(*model_, wide, text);
  const GuessTree whole = Guess(wide, text, {.depth = 4, .nodes = 0});
  KvCache narrow(pages_.get(), 64);
  Feed(*model_, narrow, text);
  const GuessTree cut = Guess(narrow, text, {.depth = 4, .nodes = 0});
  EXPECT_THAT(cut.token_ids, ElementsAre(whole.token_ids[0], whole.token_ids[1]));
  EXPECT_THAT(cut.chances, ElementsAre(whole.chances[0], whole.chances[1]));
  Feed(*model_, narrow, {{1, 2}});
  std::vector<int32_t> longer = text;
  longer.insert(longer.end(), {1, 2});
  EXPECT_TRUE(Guess(narrow, longer, {.depth = 4, .nodes = 8}).token_ids.empty());

  // A pool without a free page.
  const KvShape shape = model_->kv_shape();
  const auto few = *KvPagePool::Create(shape, HostKvMemory::Bytes(shape, 64));
  KvCache alone(few.get(), 512);
  Feed(*model_, alone, text);
  EXPECT_EQ(Guess(alone, text, {.depth = 4, .nodes = 0}), cut);
  Feed(*model_, alone, {{1, 2}});
  EXPECT_TRUE(Guess(alone, longer, {.depth = 4, .nodes = 8}).token_ids.empty());
}

// ---------------------------------------------------------------- folders

TEST_F(PassTest, FoldersThatDoNotFitAreRefused) {
  for (const size_t num_rows : {1, 15}) {
    testing::WriteRandomLookAhead(dir_ / "heads", {.num_rows = num_rows});
    EXPECT_EQ((*Load())->self_drafter()->max_depth(), num_rows + 1);
  }
  using nlohmann::json;
  for (const json& rows : {json(0), json(16), json(-1), json("3"), json(1.5), json::array()}) {
    WriteConfig(rows, 32);
    EXPECT_THAT(Refusal(), AllOf(HasSubstr("heads/config.json: num_lookahead_tokens is "),
                                 HasSubstr("want a whole number from 1 to 15")))
        << rows;
  }
  WriteConfig(3, 24);
  EXPECT_THAT(Refusal(), HasSubstr("heads/config.json: hidden_size is 24, the target has 32"));
  WriteConfig(3, nullptr);
  EXPECT_THAT(Refusal(), HasSubstr("heads/config.json: hidden_size"));
  WriteConfig(3, 32);  // the file has 15
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("heads/model.safetensors: tensor \"lookahead.weight\""),
                               HasSubstr("num_lookahead_tokens")));
  std::filesystem::remove(dir_ / "heads" / "model.safetensors");
  EXPECT_THAT(Refusal(), HasSubstr("heads: has neither model.safetensors nor"));
  testing::WriteRandomHeads(dir_ / "heads", {});
  WriteConfig(3, 32);
  EXPECT_THAT(Refusal(), HasSubstr("tensor \"lookahead.weight\" is missing"));
  std::ofstream(dir_ / "heads" / "config.json") << R"({"hidden_size": 32})";
  EXPECT_THAT(Refusal(), HasSubstr("nor num_lookahead_tokens (PaSS)"));
}

TEST_F(PassTest, AFileThatBecomesShorterIsAnError) {
  LoadRandom(3);
  const std::vector<int32_t> text = RandomText(5);
  KvCache cache(pages_.get(), 512);
  Feed(*model_, cache, text);
  std::filesystem::resize_file(dir_ / "heads" / "model.safetensors", 100);
  GuessOrder order = {.text = {&cache, text},
                      .next_token_id = kNewest,
                      .limits = {.depth = 4, .nodes = 0},
                      .tree = {}};
  const absl::Status status = model_->self_drafter()->Propose({&order, 1});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("heads/model.safetensors"));
  EXPECT_TRUE(order.tree.token_ids.empty());
}

// ---------------------------------------------------------------- a double of the device

// Remembers the rows that it was asked for.
class DoubleOfDevice final : public StepDevice {
 public:
  explicit DoubleOfDevice(std::vector<StepPass>* passes) : passes_(*passes) {}

  uint64_t weight_bytes() const override { return 0; }
  absl::Status Check() const override { return absl::OkStatus(); }
  absl::Status Run(const StepPass& pass) override {
    EXPECT_LE(pass.rows.size(), kMaxRows);
    passes_.push_back(pass);
    return passes_.size() == 2 ? absl::InternalError("lost") : absl::OkStatus();
  }
  absl::StatusOr<std::vector<std::vector<tandem::Guess>>> LookAhead(
      std::span<const int32_t> guesses, int32_t /*count*/) override {
    EXPECT_EQ(guesses.size(), passes_.back().rows.size());
    return std::vector<std::vector<tandem::Guess>>(guesses.size(), {{3, 0.5f}});
  }

 private:
  std::vector<StepPass>& passes_;
};

TEST(LookAheadDrafterTest, ComputesOneRowForEachTokenThatIsWanted) {
  KvShape shape;
  shape.num_layers = 1;
  shape.num_kv_heads = 1;
  shape.head_size = 2;
  const auto pages = *KvPagePool::Create(shape, uint64_t{1} << 24);
  KvCache cache(pages.get(), 256);
  ASSERT_TRUE(cache.Reserve(10).ok());
  cache.Grow(10);
  const std::vector<int32_t> text(10, 1);
  std::vector<StepPass> passes;
  LookAheadDrafter drafter(std::make_unique<DoubleOfDevice>(&passes), 3);
  GuessOrder order = {
      .text = {&cache, text}, .next_token_id = 9, .limits = {.depth = 3, .nodes = 0}, .tree = {}};
  ASSERT_TRUE(drafter.Propose({&order, 1}).ok());
  ASSERT_EQ(passes.size(), 1u);
  ASSERT_EQ(passes[0].rows.size(), 3u) << "the fourth token is not wanted";
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(passes[0].rows[i].position, 10 + i);
    EXPECT_EQ(passes[0].rows[i].look_ahead, static_cast<int32_t>(i) - 1);
  }
  EXPECT_EQ(passes[0].rows[0].token_id, 9);
  ASSERT_EQ(passes[0].sequences.size(), 1u);
  EXPECT_EQ(passes[0].sequences[0].length, 10u);
  EXPECT_THAT(order.tree.token_ids, ElementsAre(3, 3, 3));

  order.tree = {};
  EXPECT_EQ(drafter.Propose({&order, 1}).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(cache.length(), 10u) << "a failure gives the rows back";
  EXPECT_TRUE(order.tree.token_ids.empty());
  EXPECT_GE(drafter.progress(), 2u);
}

}  // namespace
}  // namespace tandem::pass_test
