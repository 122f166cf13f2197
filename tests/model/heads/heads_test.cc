// Tests heads of the Medusa family: their folders, the trees of their guesses, and what they guess
// on the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "common/model/heads/trees/guess_tree.h"
#include "common/model/kv/kv_page_pool.h"
#include "common/model/language_model.h"
#include "nlohmann/json.hpp"
#include "tests/model/model_under_test.h"
#include "tests/support/random_heads.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"

namespace tandem::heads_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// ---------------------------------------------------------------- trees of guesses

const std::vector<std::vector<Guess>> kGuesses = {{{1, 0.6f}, {2, 0.3f}, {3, 0.05f}},
                                                  {{4, 0.5f}, {5, 0.4f}}};

TEST(GuessTreeTest, TakesTheLikeliestPathsFirst) {
  // The chances of the paths: 1: 0.6, 1-4: 0.3, 2: 0.3, 1-5: 0.24, 2-4: 0.15, 2-5: 0.12, 3: 0.05.
  const GuessTree tree = GrowGuessTree(kGuesses, {.depth = 2, .nodes = 6});
  EXPECT_EQ(tree.token_ids, (std::vector<int32_t>{1, 2, 4, 5, 4, 5}));
  EXPECT_EQ(tree.parents, (std::vector<int32_t>{-1, -1, 0, 0, 1, 1}));
  EXPECT_EQ(tree.chances, (std::vector<float>{0.6f, 0.3f, 0.5f, 0.4f, 0.5f, 0.4f}));
}

TEST(GuessTreeTest, AChainTakesTheFirstGuesses) {
  const GuessTree chain = GrowGuessTree(kGuesses, {.depth = 5, .nodes = 0});
  EXPECT_EQ(chain.token_ids, (std::vector<int32_t>{1, 4}));
  EXPECT_EQ(chain.parents, (std::vector<int32_t>{-1, 0}));
}

TEST(GuessTreeTest, KeepsTheLimitsAndLeavesOutWhatHasNoChance) {
  EXPECT_EQ(GrowGuessTree(kGuesses, {.depth = 1, .nodes = 9}).token_ids.size(), 3u);
  EXPECT_EQ(GrowGuessTree(kGuesses, {.depth = 2, .nodes = 2}).token_ids.size(), 2u);
  EXPECT_TRUE(GrowGuessTree(kGuesses, {.depth = 0, .nodes = 9}).token_ids.empty());
  const std::vector<std::vector<Guess>> none = {{{1, 0.7f}, {2, 0.0f}}, {}};
  EXPECT_EQ(GrowGuessTree(none, {.depth = 2, .nodes = 9}).token_ids, std::vector<int32_t>{1});
}

// ---------------------------------------------------------------- folders

class HeadsFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::WriteRandomModel(dir_ / "target", {});
    pool_ = std::make_unique<ThreadPool>(1);
  }
  absl::StatusOr<std::unique_ptr<LanguageModel>> Load() const {
    return LanguageModel::Load(dir_ / "target", pool_.get(), dir_ / "heads");
  }
  std::string NameOf() const {
    const auto model = Load();
    return model.ok() ? (*model)->self_drafter()->name() : std::string(model.status().message());
  }
  // Changes one field of config.json; null removes it.
  void SetConfig(const std::string& field, const nlohmann::json& value) const {
    const std::filesystem::path path = dir_ / "heads" / "config.json";
    nlohmann::json config = nlohmann::json::parse(std::ifstream(path));
    if (value.is_null()) {
      config.erase(field);
    } else {
      config[field] = value;
    }
    std::ofstream(path) << config.dump();
  }
  std::string Refusal() const {
    const auto model = Load();
    return model.ok() ? "" : std::string(model.status().message());
  }

  testing::TempDir dir_;
  std::unique_ptr<ThreadPool> pool_;
};

TEST_F(HeadsFolderTest, TheOutputProductTellsMedusaFromBlockwise) {
  testing::WriteRandomHeads(dir_ / "heads", {});
  EXPECT_EQ(NameOf(), "medusa");
  testing::WriteRandomHeads(dir_ / "heads", {.num_layers = 2, .has_bias = true});
  EXPECT_EQ(NameOf(), "medusa");
  testing::WriteRandomHeads(dir_ / "heads", {.shares_output = true});
  EXPECT_EQ(NameOf(), "medusa");
  testing::WriteRandomHeads(dir_ / "heads", {.shares_output = true, .uses_target_output = true});
  EXPECT_EQ(NameOf(), "blockwise");
  EXPECT_EQ((*Load())->self_drafter()->max_depth(), 3u);
}

TEST_F(HeadsFolderTest, AModelWithoutHeadsHasNoDrafter) {
  const auto model = LanguageModel::Load(dir_ / "target", pool_.get());
  ASSERT_TRUE(model.ok());
  EXPECT_EQ((*model)->self_drafter(), nullptr);
}

TEST_F(HeadsFolderTest, HeadsOfAnotherModelAreRefusedByTheField) {
  testing::WriteRandomHeads(dir_ / "heads", {.hidden_size = 16});
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("config.json"), HasSubstr("hidden_size is 16"),
                               HasSubstr("the target has 32")));
  testing::WriteRandomHeads(dir_ / "heads", {.vocabulary_size = 65});
  EXPECT_THAT(Refusal(), HasSubstr("vocab_size is 65, the target has 64"));
  testing::WriteRandomHeads(dir_ / "heads", {});
  SetConfig("hidden_size", nullptr);
  SetConfig("num_heads", 17);
  EXPECT_THAT(Refusal(), HasSubstr("num_heads is 17 (want a whole number from 1 to 16)"));
  SetConfig("num_heads", nullptr);
  EXPECT_THAT(Refusal(), HasSubstr("has neither num_heads nor medusa_num_heads"));
}

TEST_F(HeadsFolderTest, TensorsThatDoNotFitAreRefusedByName) {
  testing::WriteRandomHeads(dir_ / "heads", {});
  SetConfig("num_heads", 4);
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("model.safetensors"),
                               HasSubstr("tensor \"blocks.3.layers.0.weight\" is missing")));
  SetConfig("num_heads", 3);
  SetConfig("medusa_fc_bias", true);
  EXPECT_THAT(Refusal(), HasSubstr("tensor \"blocks.0.layers.0.bias\" is missing"));
  SetConfig("medusa_fc_bias", false);
  SetConfig("truncated_vocab_size", 10);
  EXPECT_THAT(Refusal(), HasSubstr("token_map"));
}

TEST_F(HeadsFolderTest, APickleIsRefusedWithWhatToDo) {
  testing::WriteRandomHeads(dir_ / "heads", {});
  std::filesystem::rename(dir_ / "heads" / "model.safetensors",
                          dir_ / "heads" / "medusa_lm_head.pt");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("is a pickle"), HasSubstr("convert_medusa.py")));
  std::filesystem::remove(dir_ / "heads" / "medusa_lm_head.pt");
  EXPECT_THAT(Refusal(), HasSubstr("has neither model.safetensors nor medusa_lm_head"));
  EXPECT_THAT(
      std::string(
          LanguageModel::Load(dir_ / "target", pool_.get(), dir_ / "nothing").status().message()),
      HasSubstr("config.json: is missing"));
}

// ---------------------------------------------------------------- guesses

// Makes a pass over a prompt and has the heads guess.
GuessTree GuessAfter(LanguageModel& model, const std::vector<int32_t>& prompt,
                     const GuessLimits& limits) {
  auto pages = *KvPagePool::Create(model.description(), uint64_t{1} << 26);
  KvCache cache(pages.get(), 64);
  const ForwardItem item = {.cache = &cache, .token_ids = prompt, .parents = {}, .num_logits = 2};
  EXPECT_TRUE(model.Forward({&item, 1}).ok());
  SelfDrafter& heads = *model.self_drafter();
  heads.KeepFeature(0, 1);
  std::vector<GuessOrder> orders(1);
  orders[0].limits = limits;
  EXPECT_TRUE(heads.Propose(orders).ok());
  return std::move(orders[0].tree);
}

// tests/golden/heads/tales.json has what transformers and the same heads guess.
TEST(HeadsGoldenTest, TheEmbeddedHeadsGuessWhatTheReferenceDoes) {
  const std::filesystem::path golden =
      testing::SourceDir() / "tests" / "golden" / "heads" / "tales.json";
  const nlohmann::json all = nlohmann::json::parse(std::ifstream(golden));
  ThreadPool pool(2);
  const std::filesystem::path pair = testing::SourceDir() / "models" / "tales";
  for (const auto& [name, cases] : all.items()) {
    auto model = LanguageModel::Load(pair / "target", &pool, pair / name);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ((*model)->self_drafter()->name(), name);
    for (const nlohmann::json& example : cases) {
      const auto prompt = example["input_ids"].get<std::vector<int32_t>>();
      const GuessTree tree = GuessAfter(**model, prompt, {.depth = 4, .nodes = 4096});
      // The children of the beginning are the guesses of the first head, and so on down along the
      // first children.
      int32_t parent = -1;
      for (const nlohmann::json& head : example["heads"]) {
        std::vector<std::pair<int32_t, float>> got;
        int32_t first = -1;
        for (size_t i = 0; i < tree.token_ids.size(); ++i) {
          if (tree.parents[i] != parent) continue;
          if (first < 0) first = static_cast<int32_t>(i);
          got.emplace_back(tree.token_ids[i], tree.chances[i]);
        }
        const auto ids = head["token_ids"].get<std::vector<int32_t>>();
        const auto log_probs = head["log_probs"].get<std::vector<float>>();
        ASSERT_GE(got.size(), ids.size());
        for (size_t i = 0; i < ids.size(); ++i) {
          EXPECT_EQ(got[i].first, ids[i]) << name;
          EXPECT_NEAR(std::log(got[i].second), log_probs[i], 1e-3) << name;
        }
        parent = first;
      }
    }
  }
}

TEST_F(HeadsFolderTest, AGuessDependsOnItsOwnFeatureAlone) {
  for (const size_t known : {0, 20}) {
    testing::WriteRandomHeads(
        dir_ / "heads",
        {.truncated_vocabulary_size = known, .has_bias = true, .output_scale = 2.0});
    auto model = *Load();
    const std::vector<int32_t> one = {5, 11, 3};
    const std::vector<int32_t> other = {7, 2, 40, 9};
    const GuessTree alone = GuessAfter(*model, one, {.depth = 3, .nodes = 12});
    ASSERT_EQ(alone.token_ids.size(), 12u);

    auto pages = *KvPagePool::Create(model->description(), uint64_t{1} << 26);
    KvCache first(pages.get(), 64);
    KvCache second(pages.get(), 64);
    const ForwardItem items[] = {
        {.cache = &first, .token_ids = other, .parents = {}, .num_logits = 1},
        {.cache = &second, .token_ids = one, .parents = {}, .num_logits = 3}};
    ASSERT_TRUE(model->Forward(items).ok());
    SelfDrafter& heads = *model->self_drafter();
    heads.KeepFeature(2, 0);
    heads.KeepFeature(1, 3);
    std::vector<GuessOrder> orders = {
        {.place = 2, .limits = {.depth = 1, .nodes = 3}, .tree = {}},
        {.place = 1, .limits = {.depth = 3, .nodes = 12}, .tree = {}}};
    ASSERT_TRUE(heads.Propose(orders).ok());
    EXPECT_EQ(orders[0].tree.token_ids.size(), 3u);
    EXPECT_EQ(orders[1].tree.token_ids, alone.token_ids);
    EXPECT_EQ(orders[1].tree.parents, alone.parents);
    EXPECT_EQ(orders[1].tree.chances, alone.chances);
  }
}

// Writes the heads of `blocks` again in the layout of FasterDecoding/Medusa: other names in another
// file. The numbers are the same. PRECOND: three heads of one layer with a bias.
void WriteNumbered(const std::filesystem::path& blocks, const std::filesystem::path& numbered) {
  std::ifstream file(blocks / "model.safetensors", std::ios::binary);
  uint64_t header_size = 0;
  file.read(reinterpret_cast<char*>(&header_size), sizeof(header_size));
  std::string header(header_size, ' ');
  file.read(header.data(), static_cast<std::streamsize>(header_size));
  const std::string data{std::istreambuf_iterator<char>(file), {}};
  const nlohmann::json tensors = nlohmann::json::parse(header);
  nlohmann::json renamed;
  for (const auto& [name, tensor] : tensors.items()) {
    std::string other = name;
    for (const std::string head : {"0", "1", "2"}) {
      for (const std::string part : {".weight", ".bias"}) {
        if (name == "blocks." + head + ".layers.0" + part) {
          other = "medusa_head." + head + ".0.linear" + part;
        }
      }
      if (name == "lm_heads." + head + ".weight") other = "medusa_head." + head + ".1.weight";
    }
    renamed[other] = tensor;
  }
  header = renamed.dump();
  header_size = header.size();
  std::filesystem::create_directories(numbered);
  std::ofstream out(numbered / "medusa_lm_head.safetensors", std::ios::binary);
  out.write(reinterpret_cast<const char*>(&header_size), sizeof(header_size));
  out << header << data;
  nlohmann::json config = nlohmann::json::parse(std::ifstream(blocks / "config.json"));
  for (const char* field : {"num_heads", "num_hidden_layers", "medusa_fc_bias"}) {
    config.erase(field);
  }
  config["medusa_num_heads"] = 3;
  config["medusa_num_layers"] = 1;
  std::ofstream(numbered / "config.json") << config.dump();
}

TEST_F(HeadsFolderTest, BothLayoutsOfMedusaGiveTheSameGuesses) {
  testing::WriteRandomHeads(dir_ / "blocks", {.has_bias = true, .output_scale = 2.0});
  WriteNumbered(dir_ / "blocks", dir_ / "numbered");
  const auto guesses = [&](const char* folder) {
    auto model = LanguageModel::Load(dir_ / "target", pool_.get(), dir_ / folder);
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() ? GuessAfter(**model, {5, 11, 3}, {.depth = 3, .nodes = 12}) : GuessTree();
  };
  const GuessTree expected = guesses("blocks");
  const GuessTree got = guesses("numbered");
  EXPECT_EQ(expected.token_ids.size(), 12u);
  EXPECT_EQ(got.token_ids, expected.token_ids);
  EXPECT_EQ(got.parents, expected.parents);
  EXPECT_EQ(got.chances, expected.chances);
}

}  // namespace
}  // namespace tandem::heads_test
