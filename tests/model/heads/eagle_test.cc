// Tests a layer of EAGLE: its folder, its trees, and what it guesses on the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "common/model/checkpoint/checkpoint.h"
#include "common/model/heads/eagle/eagle_description.h"
#include "common/model/heads/eagle/eagle_weights.h"
#include "common/model/heads/heads_weights.h"
#include "common/model/heads/trees/level_tree.h"
#include "common/model/kv/kv_page_pool.h"
#include "common/model/language_model.h"
#include "nlohmann/json.hpp"
#include "tests/model/model_under_test.h"
#include "tests/support/random_heads.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"

namespace tandem::eagle_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// ---------------------------------------------------------------- the tree

TEST(LevelTreeTest, TheBestNodesAreThoseWithTheLikeliestPaths) {
  LevelTree tree;
  tree.Add(-1, std::vector<Guess>{{1, 0.6f}, {2, 0.3f}, {3, 0.0f}});
  EXPECT_EQ(tree.Likeliest(0, 9, 0), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(tree.Likeliest(0, 1, 0), (std::vector<int32_t>{0}));
  EXPECT_EQ(tree.Likeliest(0, 9, 0.5), (std::vector<int32_t>{0}));
  tree.Add(1, std::vector<Guess>{{4, 0.9f}});              // path 0.27
  tree.Add(0, std::vector<Guess>{{5, 0.4f}, {6, 0.35f}});  // paths 0.24 and 0.21
  EXPECT_EQ(tree.Likeliest(1, 2, 0), (std::vector<int32_t>{2, 3}));
  const GuessTree best = tree.Best(4);
  EXPECT_EQ(best.token_ids, (std::vector<int32_t>{1, 2, 4, 5}));
  EXPECT_EQ(best.parents, (std::vector<int32_t>{-1, -1, 1, 0}));
  EXPECT_EQ(best.chances, (std::vector<float>{0.6f, 0.3f, 0.9f, 0.4f}));
  EXPECT_EQ(tree.Best(99).token_ids.size(), 5u);
}

TEST(LevelTreeTest, AParentComesBeforeAChildThatIsCertain) {
  LevelTree tree;
  tree.Add(-1, std::vector<Guess>{{1, 0.5f}, {2, 0.5f}});
  tree.Add(1, std::vector<Guess>{{3, 1.0f}});
  EXPECT_EQ(tree.Best(3).parents, (std::vector<int32_t>{-1, -1, 1}));
}

TEST(SharpenTest, ChancesAreThoseOfAnotherTemperature) {
  const std::vector<Guess> guesses = {{7, 0.5f}, {3, 0.25f}, {9, 0.1f}};
  std::vector<Guess> sharp = guesses;
  Sharpen(sharp, 0.5);
  // The other tokens, 0.15 in all, are taken for one and a half tokens of 0.1.
  const double sum = 0.25 + 0.0625 + 0.01 + 0.15 * 0.1;
  EXPECT_NEAR(sharp[0].chance, 0.25 / sum, 1e-6);
  EXPECT_NEAR(sharp[1].chance, 0.0625 / sum, 1e-6);
  EXPECT_NEAR(sharp[2].chance, 0.01 / sum, 1e-6);
  EXPECT_EQ(sharp[2].token_id, 9);

  std::vector<Guess> same = guesses;
  Sharpen(same, 1);
  EXPECT_EQ(same[0].chance, 0.5f);
  std::vector<Guess> flat = guesses;
  Sharpen(flat, 2);
  EXPECT_LT(flat[0].chance, 0.5f);
  std::vector<Guess> greedy = guesses;
  Sharpen(greedy, 0);
  std::vector<Guess> sharpest = guesses;
  Sharpen(sharpest, kSharpest);
  EXPECT_EQ(greedy[0].chance, sharpest[0].chance);
  EXPECT_GT(greedy[0].chance, sharp[0].chance);
  std::vector<Guess> certain = {{1, 1.0f}, {2, 0.0f}};
  Sharpen(certain, 0.5);
  EXPECT_EQ(certain[0].chance, 1.0f);
  EXPECT_EQ(certain[1].chance, 0.0f);
}

// ---------------------------------------------------------------- folders

class EagleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // A target of many layers, so that a step of EAGLE costs little, and unlikely paths grow too.
    testing::WriteRandomModel(dir_ / "target", {.num_layers = 16, .max_position_embeddings = 4096});
    testing::WriteRandomEagle(dir_ / "heads", {.output_scale = 2.0});
  }
  absl::StatusOr<std::unique_ptr<LanguageModel>> Load() {
    return LanguageModel::Load(dir_ / "target", &pool_, dir_ / "heads");
  }
  std::string Refusal() {
    const auto model = Load();
    return model.ok() ? "" : std::string(model.status().message());
  }
  void SetConfig(const std::string& field, const nlohmann::json& value) const {
    const std::filesystem::path path = dir_ / "heads" / "config.json";
    nlohmann::json config = nlohmann::json::parse(std::ifstream(path));
    config[field] = value;
    std::ofstream(path) << config.dump();
  }

  testing::TempDir dir_;
  ThreadPool pool_{2};
};

TEST_F(EagleTest, PagesHoldItsRowsBesideThoseOfTheTarget) {
  auto model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->self_drafter()->name(), "eagle");
  const KvShape shape = (*model)->kv_shape();
  EXPECT_EQ(shape.num_layers, 17u);
  EXPECT_EQ(shape.feature_floats, 32u);
}

TEST_F(EagleTest, LayersOfAnotherModelAreRefusedByTheField) {
  testing::WriteRandomEagle(dir_ / "heads", {.hidden_size = 16});
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("config.json"), HasSubstr("hidden_size is 16"),
                               HasSubstr("the target has 32")));
  testing::WriteRandomEagle(dir_ / "heads", {.vocabulary_size = 65});
  EXPECT_THAT(Refusal(), HasSubstr("vocab_size is 65, the target has 64"));
  testing::WriteRandomEagle(dir_ / "heads", {.num_kv_heads = 4});
  EXPECT_THAT(Refusal(), HasSubstr("num_key_value_heads is 4, the target has 2"));
  testing::WriteRandomEagle(dir_ / "heads", {.head_size = 16});
  EXPECT_THAT(Refusal(), HasSubstr("head_dim is 16, the target has 8"));
  testing::WriteRandomEagle(dir_ / "heads", {});
  SetConfig("num_hidden_layers", 2);
  EXPECT_THAT(Refusal(), HasSubstr("num_hidden_layers is 2, want 1"));
  SetConfig("num_hidden_layers", 1);
  SetConfig("intermediate_size", 64);
  EXPECT_THAT(Refusal(), HasSubstr("layers.0.mlp.gate_proj.weight"));
}

TEST_F(EagleTest, FieldsOfEagle3ThatDoNotFitAreRefused) {
  const testing::RandomEagleSpec third = {.is_third = true};
  const auto refusal_of = [&](const std::string& field, const nlohmann::json& value) {
    testing::WriteRandomEagle(dir_ / "heads", third);
    SetConfig(field, value);
    return Refusal();
  };
  EXPECT_EQ(refusal_of("target_hidden_size", 32), "");
  EXPECT_THAT(refusal_of("target_hidden_size", 48), HasSubstr("target_hidden_size is 48"));
  EXPECT_THAT(refusal_of("norm_before_residual", true), HasSubstr("norm_before_residual is true"));
  EXPECT_THAT(refusal_of("draft_vocab_size", 65), HasSubstr("draft_vocab_size"));
  EXPECT_THAT(refusal_of("draft_vocab_size", 60), HasSubstr("d2t"));
  const nlohmann::json other_norm = {{"norm_before_residual", true}};
  EXPECT_THAT(refusal_of("eagle_config", other_norm),
              HasSubstr("eagle_config.norm_before_residual is true"));
  const nlohmann::json unused = {{"use_aux_hidden_state", false}};
  EXPECT_THAT(refusal_of("eagle_config", unused),
              HasSubstr("eagle_config.use_aux_hidden_state is false"));
  const std::string ids = "eagle_aux_hidden_state_layer_ids";
  for (const nlohmann::json& list :
       {nlohmann::json({2, 8, 17}), nlohmann::json({1, 8, 16}), nlohmann::json({2, -1, 3}),
        nlohmann::json({2, "8", 3}), nlohmann::json::array(), nlohmann::json(2),
        nlohmann::json({2, 2, 2, 2, 2, 2, 2, 2, 2})}) {
    EXPECT_THAT(refusal_of(ids, list),
                AllOf(HasSubstr(ids + " is "), HasSubstr("1 to 8 of the target's 16 layers")))
        << list;
  }
  EXPECT_EQ(refusal_of(ids, {16, 0, 4}), "");
  EXPECT_THAT(refusal_of(ids, {2, 8}), HasSubstr("fc.weight"));

  testing::WriteRandomModel(dir_ / "target", {.num_layers = 3});
  EXPECT_THAT(refusal_of("target_hidden_size", 32),
              AllOf(HasSubstr(ids + " is missing"), HasSubstr("a target of 3 layers")));
}

TEST_F(EagleTest, IdsThatBeginWithOneAreLayersThatTheStatesLeave) {
  const auto layers_of = [&](const std::vector<size_t>& ids, bool has_middle_names) {
    testing::WriteRandomEagle(
        dir_ / "heads", {.is_third = true, .layer_ids = ids, .has_middle_names = has_middle_names});
    const auto model = Load();
    EXPECT_TRUE(model.ok()) << model.status();
    std::vector<size_t> layers;
    for (const RowFeatures::Part& part : (*model)->self_drafter()->row_features().parts) {
      EXPECT_FALSE(part.is_normed);
      layers.push_back(part.layer);
    }
    return layers;
  };
  for (const bool has_middle_names : {true, false}) {
    EXPECT_EQ(layers_of({1, 7, 15}, has_middle_names), (std::vector<size_t>{2, 8, 16}));
    EXPECT_EQ(layers_of({2, 7, 15}, has_middle_names), (std::vector<size_t>{2, 7, 15}));
    EXPECT_EQ(layers_of({3, 1}, has_middle_names), (std::vector<size_t>{3, 1}));
    EXPECT_EQ(layers_of({}, has_middle_names), (std::vector<size_t>{2, 8, 13}));
  }
}

TEST_F(EagleTest, ATokenMapThatLeavesTheVocabularyIsRefused) {
  const testing::RandomEagleSpec third = {.is_third = true, .truncated_vocabulary_size = 40};
  testing::WriteRandomEagle(dir_ / "heads", third);
  ASSERT_EQ(Refusal(), "");
  const std::filesystem::path file = dir_ / "heads" / "model.safetensors";
  const auto size = static_cast<std::streamoff>(std::filesystem::file_size(file));
  // The map is the last tensor.
  int64_t first = 0;
  std::ifstream(file, std::ios::binary)
      .seekg(size - 40 * 8)
      .read(reinterpret_cast<char*>(&first), sizeof(first));
  const int64_t repeated = first - 39;  // the last token's id is that of the first one
  for (const int64_t entry : {int64_t{-40}, int64_t{25}, INT64_MIN, INT64_MAX, repeated}) {
    std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
    stream.seekp(size - 8);
    stream.write(reinterpret_cast<const char*>(&entry), sizeof(entry));
    stream.close();
    EXPECT_THAT(Refusal(), AllOf(HasSubstr("\"d2t\": entry 39 is " + std::to_string(entry)),
                                 HasSubstr("each minus its place")));
  }
}

TEST_F(EagleTest, TensorsOfOtherVersionsAreRefusedByName) {
  testing::WriteRandomHeads(dir_ / "heads", {});  // changes config.json too
  testing::TempDir eagle;
  testing::WriteRandomEagle(eagle.path(), {});
  std::filesystem::copy_file(eagle / "config.json", dir_ / "heads" / "config.json",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(Refusal(), HasSubstr("tensor \"blocks.0.layers.0.weight\" is not one of EAGLE-1"));
  testing::WriteRandomEagle(dir_ / "heads", {.is_third = true, .layer_ids = {2, 3}});
  std::filesystem::rename(dir_ / "heads" / "model.safetensors", eagle / "model.safetensors");
  testing::WriteRandomEagle(dir_ / "heads", {});
  std::filesystem::rename(eagle / "model.safetensors", dir_ / "heads" / "model.safetensors");
  EXPECT_THAT(Refusal(), HasSubstr("fc.weight"));
}

TEST_F(EagleTest, TheLayoutOfSpeculatorsIsRefusedByItsField) {
  std::ofstream(dir_ / "heads" / "config.json") << R"({"transformer_layer_config": {}})";
  EXPECT_THAT(Refusal(), HasSubstr("has transformer_layer_config"));
}

TEST_F(EagleTest, APickleIsRefusedWithWhatToDo) {
  std::filesystem::rename(dir_ / "heads" / "model.safetensors",
                          dir_ / "heads" / "pytorch_model.bin");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("is a pickle"), HasSubstr("convert_eagle.py")));
}

// ---------------------------------------------------------------- a reference

using Row = std::vector<double>;

// One layer of EAGLE, row by row, in double precision.
class Reference {
 public:
  Reference(const EagleDescription& eagle, const EagleWeights& weights)
      : is_third_(eagle.is_third), model_(eagle.layer), weights_(weights) {}

  // Appends a row and returns what it guesses. `state` is a feature of the target or a guess.
  Row Append(int32_t token_id, const Row& state, bool is_guess) {
    const size_t hidden = model_.hidden_size;
    const auto* table = static_cast<const float*>(weights_.embedding.weight);
    const auto* row = table + static_cast<size_t>(token_id) * hidden;
    Row input(row, row + hidden);
    Row x = state;
    if (is_third_) {
      if (!is_guess) x = Times(weights_.fuse, state);
      input = Joined(Norm(input, weights_.layer.attention_norm), Norm(x, weights_.state_norm));
    } else {
      input = x = Times(weights_.fuse, Joined(input, state));
    }
    Row query = Times(weights_.layer.query, input);
    Row key = Times(weights_.layer.key, input);
    const auto position = static_cast<double>(keys_.size() + 1);
    Turn(query, position);
    Turn(key, position);
    keys_.push_back(key);
    values_.push_back(Times(weights_.layer.value, input));
    Add(x, Times(weights_.layer.attention_output, Attend(query)));
    const Row normed = Norm(x, weights_.layer.mlp_norm);
    Row gate = Times(weights_.layer.gate, normed);
    const Row up = Times(weights_.layer.up, normed);
    for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
    Add(x, Times(weights_.layer.down, gate));
    return x;
  }

  // Returns the chances of the target's tokens after a guess. Those of tokens that the layer does
  // not know are 0.
  Row Chances(const Row& guess) const {
    Row logits = Times(weights_.output, is_third_ ? Norm(guess, weights_.output_norm) : guess);
    const double max = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (double& logit : logits) sum += logit = std::exp(logit - max);
    for (double& logit : logits) logit /= sum;
    if (weights_.token_map.empty()) return logits;
    Row chances(model_.vocabulary_size);
    for (size_t i = 0; i < logits.size(); ++i) {
      chances[static_cast<size_t>(weights_.token_map[i])] = logits[i];
    }
    return chances;
  }

 private:
  static Row Joined(Row first, const Row& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
  }
  static Row Times(const Linear& linear, const Row& x) {
    const auto* weight = static_cast<const float*>(linear.weight);
    Row out(linear.out_features);
    for (size_t o = 0; o < out.size(); ++o) {
      for (size_t i = 0; i < x.size(); ++i) out[o] += weight[o * x.size() + i] * x[i];
      if (!linear.bias.empty()) out[o] += linear.bias[o];
    }
    return out;
  }
  static void Add(Row& x, const Row& y) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }
  Row Norm(const Row& x, const std::vector<float>& weight) const {
    const double square = std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
    const double scale = 1 / std::sqrt(square / static_cast<double>(x.size()) + model_.norm_eps);
    Row out(x.size());
    for (size_t i = 0; i < x.size(); ++i) out[i] = x[i] * scale * weight[i];
    return out;
  }
  void Turn(Row& heads, double position) const {
    const size_t size = model_.attention.head_size;
    for (size_t begin = 0; begin < heads.size(); begin += size) {
      for (size_t i = 0; i < size / 2; ++i) {
        const double angle =
            position * std::pow(model_.attention.rope.theta,
                                -2.0 * static_cast<double>(i) / static_cast<double>(size));
        double& a = heads[begin + i];
        double& b = heads[begin + size / 2 + i];
        const double turned = a * std::cos(angle) - b * std::sin(angle);
        b = b * std::cos(angle) + a * std::sin(angle);
        a = turned;
      }
    }
  }
  Row Attend(const Row& query) const {
    const size_t size = model_.attention.head_size;
    const size_t group = model_.attention.num_heads / model_.attention.num_kv_heads;
    Row out(query.size());
    for (size_t head = 0; head < model_.attention.num_heads; ++head) {
      const size_t kv = head / group * size;
      Row weights;
      for (const Row& key : keys_) {
        double score = 0;
        for (size_t i = 0; i < size; ++i) score += query[head * size + i] * key[kv + i];
        weights.push_back(std::exp(score / std::sqrt(static_cast<double>(size))));
      }
      const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
      for (size_t j = 0; j < weights.size(); ++j) {
        for (size_t i = 0; i < size; ++i) {
          out[head * size + i] += weights[j] / sum * values_[j][kv + i];
        }
      }
    }
    return out;
  }

  bool is_third_;
  const ModelDescription& model_;
  const EagleWeights& weights_;
  std::vector<Row> keys_;
  std::vector<Row> values_;
};

// ---------------------------------------------------------------- guesses

std::vector<int32_t> RandomText(size_t length) {
  std::vector<int32_t> text;
  for (size_t i = 0; i < length; ++i) text.push_back(static_cast<int32_t>((i * 37 + i * i) % 62));
  return text;
}

// With a layer of EAGLE-1, and one of EAGLE-3.
class EagleGuessTest : public EagleTest, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    EagleTest::SetUp();
    if (GetParam()) {
      testing::WriteRandomEagle(
          dir_ / "heads", {.is_third = true, .truncated_vocabulary_size = 50, .output_scale = 0.7});
    }
    auto model = Load();
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    pages_ = *KvPagePool::Create(model_->kv_shape(), uint64_t{1} << 26);
  }
  SelfDrafter& eagle() { return *model_->self_drafter(); }

  void Feed(KvCache& cache, std::span<const int32_t> token_ids,
            std::span<const int32_t> parents = {}) {
    const ForwardItem item = {
        .cache = &cache, .token_ids = token_ids, .parents = parents, .num_logits = 1};
    const auto logits = model_->Forward({&item, 1});
    ASSERT_TRUE(logits.ok()) << logits.status();
  }
  // Begins with the pages that were published as 1 and 2, and makes room for 12 more rows.
  void TakeTwoPages(KvCache& cache) {
    std::vector<KvPage> found;
    found.push_back(pages_->Find({1}));
    found.push_back(pages_->Find({2}));
    ASSERT_TRUE(cache.Extend(0, std::move(found), 12).ok());
  }
  GuessTree Propose(KvCache& cache, std::span<const int32_t> text, int32_t next,
                    const GuessLimits& limits) {
    std::vector<GuessOrder> orders(1);
    orders[0].text = {&cache, text};
    orders[0].next_token_id = next;
    orders[0].limits = limits;
    EXPECT_TRUE(eagle().Propose(orders).ok());
    EXPECT_EQ(cache.length(), text.size());
    return std::move(orders[0].tree);
  }
  GuessTree Guess(KvCache& cache, std::span<const int32_t> text, int32_t next,
                  const GuessLimits& limits) {
    const TextRows rows = {&cache, text};
    EXPECT_TRUE(eagle().CatchUp({&rows, 1}).ok());
    return Propose(cache, text, next, limits);
  }

  std::unique_ptr<LanguageModel> model_;
  std::unique_ptr<KvPagePool> pages_;
};

bool operator==(const GuessTree& a, const GuessTree& b) {
  return a.token_ids == b.token_ids && a.parents == b.parents && a.chances == b.chances;
}

INSTANTIATE_TEST_SUITE_P(Versions, EagleGuessTest, ::testing::Bool(),
                         [](const auto& version) { return version.param ? "Eagle3" : "Eagle1"; });

TEST_P(EagleGuessTest, GuessesWhatTheReferenceDoes) {
  const auto target_file = *Checkpoint::Open(dir_ / "target");
  const ModelWeights target = *ModelWeights::Load(*target_file, model_->description());
  const auto file = *OpenHeads(dir_ / "heads");
  const EagleDescription eagle =
      *EagleDescription::Load(dir_ / "heads", *file, model_->description());
  EXPECT_EQ(eagle.is_third, GetParam());
  const EagleWeights weights = *EagleWeights::Load(*file, eagle, target);
  size_t num_branching = 0;  // trees in which two nodes of a level have children
  for (const size_t length : {1, 2, 63, 64, 65, 150, 600}) {
    const std::vector<int32_t> text = RandomText(length);
    const int32_t next = 17;
    KvCache cache(pages_.get(), 1024);
    Feed(cache, text);
    const GuessTree tree = Guess(cache, text, next, {.depth = 4, .nodes = 16});
    ASSERT_EQ(tree.token_ids.size(), 16u);
    Feed(cache, std::vector<int32_t>{next});  // the features are those of the target's passes

    Reference reference(eagle, weights);
    const auto feature_of = [&](size_t row) {
      const float* feature = cache.Feature(row);
      return Row(feature, feature + model_->kv_shape().feature_floats);
    };
    for (size_t row = 1; row < length; ++row) {
      reference.Append(text[row], feature_of(row - 1), false);
    }
    const Row end = reference.Append(next, feature_of(length - 1), false);
    uint32_t deepest = 0;
    for (size_t node = 0; node < tree.token_ids.size(); ++node) {
      std::vector<int32_t> path;  // the node's ancestors, the first one first
      for (int32_t at = tree.parents[node]; at >= 0; at = tree.parents[static_cast<size_t>(at)]) {
        path.insert(path.begin(), tree.token_ids[static_cast<size_t>(at)]);
      }
      Reference branch = reference;
      Row feature = end;
      for (const int32_t token : path) feature = branch.Append(token, feature, true);
      const Row chances = branch.Chances(feature);
      EXPECT_NEAR(tree.chances[node], chances[static_cast<size_t>(tree.token_ids[node])], 2e-4)
          << "length " << length << ", node " << node;
      if (path.empty() && node == 0) {
        EXPECT_EQ(tree.token_ids[0],
                  std::max_element(chances.begin(), chances.end()) - chances.begin());
      }
      deepest = std::max(deepest, static_cast<uint32_t>(path.size()));
    }
    EXPECT_GE(deepest, 1u) << "the tree has paths";
    std::set<int32_t> grown;  // nodes without a parent that have children
    for (const int32_t parent : tree.parents) {
      if (parent >= 0 && tree.parents[static_cast<size_t>(parent)] < 0) grown.insert(parent);
    }
    if (grown.size() > 1) ++num_branching;
  }
  EXPECT_GT(num_branching, 1u) << "some levels have several rows";
}

TEST_P(EagleGuessTest, AGuessDoesNotDependOnHowTheTextCame) {
  const std::vector<int32_t> text = RandomText(140);
  const GuessLimits limits = {.depth = 5, .nodes = 16};
  KvCache whole(pages_.get(), 512);
  Feed(whole, text);
  const GuessTree expected = Guess(whole, text, 9, limits);
  EXPECT_TRUE(Guess(whole, text, 9, limits) == expected) << "repeated";

  // Token by token, with proposals and filled pages in between.
  KvCache slow(pages_.get(), 512);
  for (size_t i = 0; i < text.size(); ++i) {
    const std::span<const int32_t> so_far = std::span(text).first(i + 1);
    Feed(slow, so_far.last(1));
    if (i % 3 == 0) (void)Guess(slow, so_far, 5, {.depth = 2, .nodes = 4});
    const TextRows rows = {&slow, so_far};
    if (i == 110) {
      ASSERT_TRUE(eagle().CatchUp({&rows, 1}).ok());
    }
  }
  EXPECT_TRUE(Guess(slow, text, 9, limits) == expected);

  // In chunks, with a tree of which a path was kept.
  KvCache kept(pages_.get(), 512);
  Feed(kept, std::span(text).first(100));
  (void)Guess(kept, std::span(text).first(100), text[100], limits);
  const std::vector<int32_t> tree = {text[100], 3, text[101], 4, text[102]};
  Feed(kept, tree, std::vector<int32_t>{-1, 0, 0, 1, 2});
  ASSERT_TRUE(kept.KeepPath(100, std::vector<int32_t>{0, 2, 4}).ok());
  EXPECT_EQ(kept.length(), 103u);
  Feed(kept, std::span(text).subspan(103));
  EXPECT_TRUE(Guess(kept, text, 9, limits) == expected);

  // Rolled back, within a page and to its beginning, after other tokens.
  for (const size_t common : {30, 64}) {
    KvCache rolled(pages_.get(), 512);
    std::vector<int32_t> other(text.begin(), text.begin() + static_cast<ptrdiff_t>(common));
    while (other.size() < 135) other.push_back(3);
    Feed(rolled, other);
    (void)Guess(rolled, other, 1, limits);
    EXPECT_EQ(rolled.NumDrafterRows(), 135u);
    rolled.TruncateTo(common);
    EXPECT_EQ(rolled.NumDrafterRows(), common);
    Feed(rolled, std::span(text).subspan(common));
    EXPECT_TRUE(Guess(rolled, text, 9, limits) == expected) << common;
  }
}

TEST_P(EagleGuessTest, LongTextsAreCaughtUpInPieces) {
  const std::vector<int32_t> one = RandomText(1100);
  const std::vector<int32_t> two = RandomText(600);
  const std::vector<int32_t> three = RandomText(20);
  const GuessLimits limits = {.depth = 4, .nodes = 16};
  std::vector<GuessTree> expected;
  std::vector<std::unique_ptr<KvCache>> caches;
  for (const std::vector<int32_t>* text : {&one, &two, &three}) {
    KvCache cache(pages_.get(), 2048);
    for (size_t i = 0; i < text->size(); i += 60) {  // piece by piece, without a gap of a page
      const std::span<const int32_t> so_far =
          std::span(*text).first(std::min(text->size(), i + 60));
      Feed(cache, so_far.subspan(i));
      (void)Guess(cache, so_far, 1, {.depth = 1, .nodes = 0});
    }
    expected.push_back(Guess(cache, *text, 9, limits));
    caches.push_back(std::make_unique<KvCache>(pages_.get(), 2048));
    Feed(*caches.back(), *text);
  }
  const TextRows texts[] = {
      {caches[0].get(), one}, {caches[1].get(), two}, {caches[2].get(), three}};
  ASSERT_TRUE(eagle().CatchUp(texts).ok());
  EXPECT_EQ(caches[0]->NumDrafterRows(), 1100u);
  EXPECT_EQ(caches[1]->NumDrafterRows(), 600u);
  EXPECT_EQ(caches[2]->NumDrafterRows(), 0u) << "few rows wait for the proposal";
  std::vector<GuessOrder> orders(3);
  for (size_t i = 0; i < 3; ++i) {
    orders[i].text = texts[i];
    orders[i].next_token_id = 9;
    orders[i].limits = limits;
  }
  ASSERT_TRUE(eagle().Propose(orders).ok());
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(orders[i].tree == expected[i]) << i;
}

// With a target of few layers, because only the order of the rows matters.
class EagleLongTextTest : public EagleGuessTest {
 protected:
  void SetUp() override {
    EagleGuessTest::SetUp();
    testing::WriteRandomModel(dir_ / "target", {.num_layers = 2, .max_position_embeddings = 4096});
    pages_.reset();
    model_ = *Load();
    pages_ = *KvPagePool::Create(model_->kv_shape(), uint64_t{1} << 26);
  }
};

INSTANTIATE_TEST_SUITE_P(OneVersion, EagleLongTextTest, ::testing::Values(false));

TEST_P(EagleLongTextTest, AVeryLongTextWaitsForItsTree) {
  const std::vector<int32_t> text = RandomText(4090);
  KvCache first(pages_.get(), 4096);
  KvCache second(pages_.get(), 4096);
  Feed(first, text);
  Feed(second, text);
  const TextRows texts[] = {{&first, text}, {&second, text}};
  ASSERT_TRUE(eagle().CatchUp(texts).ok());
  EXPECT_EQ(first.NumDrafterRows(), 4090u);
  EXPECT_EQ(second.NumDrafterRows(), 6u);
  const GuessLimits limits = {.depth = 3, .nodes = 12};
  EXPECT_TRUE(Propose(second, text, 9, limits).token_ids.empty());
  const GuessTree tree = Guess(first, text, 9, limits);
  EXPECT_FALSE(tree.token_ids.empty());
  ASSERT_TRUE(eagle().CatchUp(texts).ok());
  EXPECT_TRUE(Propose(second, text, 9, limits) == tree);
}

TEST_P(EagleGuessTest, TextsOfOneBatchShareWhatTheyCompute) {
  const std::vector<int32_t> text = RandomText(140);
  KvCache writer(pages_.get(), 512);
  Feed(writer, text);
  writer.Publish(0, {1});
  writer.Publish(1, {2});
  KvCache readers[] = {KvCache(pages_.get(), 512), KvCache(pages_.get(), 512)};
  for (KvCache& reader : readers) {
    TakeTwoPages(reader);
    Feed(reader, std::span(text).subspan(128));
  }
  const TextRows texts[] = {{&readers[0], text}, {&readers[1], text}};
  ASSERT_TRUE(eagle().CatchUp(texts).ok());
  EXPECT_EQ(readers[0].NumDrafterRows(), 140u);
  EXPECT_EQ(readers[1].NumDrafterRows(), 128u) << "the other rows are its own";
  const GuessLimits limits = {.depth = 4, .nodes = 12};
  EXPECT_TRUE(Guess(readers[1], text, 9, limits) == Guess(readers[0], text, 9, limits));
}

TEST_P(EagleGuessTest, PagesThatAreFoundBringItsRows) {
  const std::vector<int32_t> text = RandomText(140);
  const GuessLimits limits = {.depth = 4, .nodes = 12};
  KvCache first(pages_.get(), 512);
  Feed(first, text);
  const GuessTree expected = Guess(first, text, 9, limits);
  EXPECT_EQ(first.NumDrafterRows(), 140u);
  first.Publish(0, {1});
  first.Publish(1, {2});

  KvCache second(pages_.get(), 512);
  TakeTwoPages(second);
  EXPECT_EQ(second.NumDrafterRows(), 128u);
  Feed(second, std::span(text).subspan(128));
  EXPECT_TRUE(Guess(second, text, 9, limits) == expected);
  EXPECT_TRUE(Guess(first, text, 9, limits) == expected) << "shared pages are as they were";
}

TEST_P(EagleGuessTest, WhoNeedsItsRowsAddsThemToSharedPages) {
  const std::vector<int32_t> text = RandomText(140);
  const GuessLimits limits = {.depth = 4, .nodes = 12};
  KvCache alone(pages_.get(), 512);
  Feed(alone, text);
  const GuessTree expected = Guess(alone, text, 9, limits);

  KvCache first(pages_.get(), 512);
  Feed(first, text);
  first.Publish(0, {1});
  first.Publish(1, {2});
  KvCache second(pages_.get(), 512);
  TakeTwoPages(second);
  EXPECT_EQ(second.NumDrafterRows(), 0u);
  Feed(second, std::span(text).subspan(128));
  EXPECT_TRUE(Guess(second, text, 9, limits) == expected);
  EXPECT_EQ(first.NumDrafterRows(), 128u) << "they are the first one's too";
  EXPECT_TRUE(Guess(first, text, 9, limits) == expected);
  // A page that is written anew has none.
  second.TruncateTo(70);
  first.TruncateTo(0);
  EXPECT_EQ(second.NumDrafterRows(), 70u);
  second.TruncateTo(10);
  Feed(second, std::vector<int32_t>(100, 5));
  EXPECT_EQ(second.NumDrafterRows(), 10u);
}

TEST_P(EagleGuessTest, LayersThatAreAdoptedLaterGuessAsIfTheyHadBeenThere) {
  testing::WriteRandomEagle(dir_ / "others",
                            {.is_third = GetParam(), .output_scale = 0.9, .seed = 9});
  const std::vector<int32_t> text = RandomText(140);
  const GuessLimits limits = {.depth = 4, .nodes = 12};
  KvCache cache(pages_.get(), 512);
  Feed(cache, text);
  const GuessTree former = Guess(cache, text, 9, limits);
  cache.Publish(0, {1});
  cache.Publish(1, {2});
  auto others = model_->LoadHeads(dir_ / "others");
  ASSERT_TRUE(others.ok()) << others.status();
  EXPECT_TRUE(Guess(cache, text, 9, limits) == former) << "they do not draft yet";
  const RowFeatures stored = model_->stored_features();
  const uint64_t progress = model_->progress();
  ASSERT_TRUE(model_->AdoptHeads(*std::move(others)).ok());
  pages_->ForgetDrafterRows();
  EXPECT_EQ(model_->stored_features(), stored) << "the cache still serves";
  EXPECT_GE(model_->progress(), progress);
  const GuessTree adopted = Guess(cache, text, 9, limits);
  EXPECT_FALSE(adopted == former);
  KvCache second(pages_.get(), 512);
  TakeTwoPages(second);
  Feed(second, std::span(text).subspan(128));
  EXPECT_TRUE(Guess(second, text, 9, limits) == adopted);
  // A model that began with these heads guesses the same.
  std::filesystem::remove_all(dir_ / "heads");
  std::filesystem::rename(dir_ / "others", dir_ / "heads");
  const auto model = *Load();
  std::swap(model_, const_cast<std::unique_ptr<LanguageModel>&>(model));
  KvCache fresh(pages_.get(), 512);
  Feed(fresh, text);
  EXPECT_TRUE(Guess(fresh, text, 9, limits) == adopted);
}

TEST_P(EagleGuessTest, AnotherVersionReadsRowsThatAreWrittenFromNowOn) {
  testing::WriteRandomEagle(
      dir_ / "others",
      {.is_third = !GetParam(), .output_scale = GetParam() ? 2.0 : 0.7, .seed = 9});
  auto others = *model_->LoadHeads(dir_ / "others");
  pages_.reset();
  model_->ReserveFor(DrafterRoom::Of(*others));
  pages_ = *KvPagePool::Create(model_->kv_shape(), uint64_t{1} << 26);
  const std::vector<int32_t> text = RandomText(140);
  const GuessLimits limits = {.depth = 4, .nodes = 12};
  KvCache cache(pages_.get(), 512);
  Feed(cache, text);
  const GuessTree former = Guess(cache, text, 9, limits);
  const RowFeatures stored = model_->stored_features();
  ASSERT_TRUE(model_->AdoptHeads(std::move(others)).ok());
  pages_->ForgetDrafterRows();
  EXPECT_FALSE(model_->stored_features() == stored);
  pages_->ForgetFeatures();
  EXPECT_TRUE(Guess(cache, text, 9, limits).token_ids.empty());
  EXPECT_EQ(cache.NumDrafterRows(), 0u) << "nothing is computed from what is not there";
  KvCache fresh(pages_.get(), 512);
  Feed(fresh, text);
  const GuessTree adopted = Guess(fresh, text, 9, limits);
  EXPECT_EQ(adopted.token_ids.size(), 12u);
  EXPECT_FALSE(adopted == former);
  // Without heads in between, passes go on to store what the last ones read.
  ASSERT_TRUE(model_->AdoptHeads(nullptr).ok());
  EXPECT_EQ(model_->self_drafter(), nullptr);
  KvCache between(pages_.get(), 512);
  Feed(between, text);
  ASSERT_TRUE(model_->AdoptHeads(*model_->LoadHeads(dir_ / "others")).ok());
  pages_->ForgetDrafterRows();
  EXPECT_TRUE(Guess(between, text, 9, limits) == adopted);
}

TEST_P(EagleGuessTest, OrdersDoNotDisturbEachOther) {
  const std::vector<int32_t> one = RandomText(70);
  const std::vector<int32_t> other = RandomText(33);
  KvCache a(pages_.get(), 512);
  KvCache b(pages_.get(), 512);
  Feed(a, one);
  Feed(b, other);
  const GuessTree chain = Guess(a, one, 2, {.depth = 3, .nodes = 0});
  const GuessTree tree = Guess(b, other, 40, {.depth = 5, .nodes = 16});
  ASSERT_LE(chain.token_ids.size(), 3u);
  for (size_t i = 0; i < chain.parents.size(); ++i) {
    EXPECT_EQ(chain.parents[i], static_cast<int32_t>(i) - 1);
  }
  std::vector<GuessOrder> orders(2);
  orders[0].text = {&b, other};
  orders[0].next_token_id = 40;
  orders[0].limits = {.depth = 5, .nodes = 16};
  orders[1].text = {&a, one};
  orders[1].next_token_id = 2;
  orders[1].limits = {.depth = 3, .nodes = 0};
  ASSERT_TRUE(eagle().Propose(orders).ok());
  EXPECT_TRUE(orders[0].tree == tree);
  EXPECT_TRUE(orders[1].tree == chain);
}

TEST_P(EagleGuessTest, AGreedyRequestGetsSharperChances) {
  const std::vector<int32_t> text = RandomText(20);
  KvCache cache(pages_.get(), 512);
  Feed(cache, text);
  const auto first_level = [&](double temperature) {
    GuessOrder order;
    order.text = {&cache, text};
    order.next_token_id = 9;
    order.temperature = temperature;
    order.limits = {.depth = 1, .nodes = 8};
    EXPECT_TRUE(eagle().Propose({&order, 1}).ok());
    std::vector<tandem::Guess> guesses;
    for (size_t i = 0; i < order.tree.token_ids.size(); ++i) {
      guesses.push_back({order.tree.token_ids[i], order.tree.chances[i]});
    }
    return guesses;
  };
  std::vector<tandem::Guess> want = first_level(1);
  const std::vector<tandem::Guess> got = first_level(0);
  ASSERT_EQ(want.size(), 8u);
  ASSERT_EQ(got.size(), 8u);
  EXPECT_GT(got[0].chance, want[0].chance);
  Sharpen(want, 0);
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].token_id, want[i].token_id);
    EXPECT_EQ(got[i].chance, want[i].chance);
  }
}

TEST_P(EagleGuessTest, LogitsAreThoseOfAModelWithoutHeads) {
  auto plain = *LanguageModel::Load(dir_ / "target", &pool_);
  auto plain_pages = *KvPagePool::Create(plain->kv_shape(), uint64_t{1} << 24);
  const std::vector<int32_t> text = RandomText(90);
  KvCache with(pages_.get(), 512);
  KvCache without(plain_pages.get(), 512);
  for (const auto& [begin, end] : {std::pair<size_t, size_t>{0, 70}, {70, 71}, {71, 90}}) {
    const std::span<const int32_t> part = std::span(text).subspan(begin, end - begin);
    const ForwardItem item_with = {
        .cache = &with, .token_ids = part, .parents = {}, .num_logits = 1};
    const ForwardItem item_without = {
        .cache = &without, .token_ids = part, .parents = {}, .num_logits = 1};
    const LogitsView a = *model_->Forward({&item_with, 1});
    const std::vector<float> logits(a.row(0), a.row(0) + 64);
    const LogitsView b = *plain->Forward({&item_without, 1});
    EXPECT_EQ(logits, std::vector<float>(b.row(0), b.row(0) + 64));
  }
}

TEST_P(EagleGuessTest, ATreeIsAsDeepAsThereIsRoom) {
  const KvShape shape = model_->kv_shape();
  const std::vector<int32_t> text = RandomText(60);
  const GuessLimits limits = {.depth = 8, .nodes = 16};
  auto few = *KvPagePool::Create(shape, HostKvMemory::Bytes(shape, 128));
  {
    KvCache other(few.get(), 64);
    Feed(other, text);
    Feed(other, std::vector<int32_t>(4, 1));
    other.Publish(0, {1});
  }
  KvCache cache(few.get(), 512);
  Feed(cache, text);
  Feed(cache, std::vector<int32_t>(4, 2));
  std::vector<int32_t> longer = text;
  longer.insert(longer.end(), 4, 2);
  EXPECT_FALSE(Guess(cache, longer, 9, limits).token_ids.empty()) << "one page was forgotten";
  EXPECT_FALSE(static_cast<bool>(few->Find({1})));
  KvCache other(few.get(), 64);
  Feed(other, text);
  EXPECT_TRUE(Guess(cache, longer, 9, limits).token_ids.empty()) << "there is no page";

  KvCache at_capacity(pages_.get(), 64);
  Feed(at_capacity, longer);
  EXPECT_TRUE(Guess(at_capacity, longer, 9, limits).token_ids.empty());
}

// ---------------------------------------------------------------- the embedded layer

void ExpectGolden(const nlohmann::json& want, std::span<const int32_t> ids,
                  std::span<const float> chances) {
  ASSERT_LE(ids.size(), want["token_ids"].size());
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(ids[i], want["token_ids"][i].get<int32_t>());
    EXPECT_NEAR(std::log(chances[i]), std::log(want["chances"][i].get<double>()), 1e-3);
  }
}

// Compares a layer for the embedded target with a file of what transformers computes.
void ExpectWhatTransformersGuesses(const std::filesystem::path& layer, const std::string& golden,
                                   size_t longest_chain = 4) {
  const nlohmann::json texts = nlohmann::json::parse(
      std::ifstream(testing::SourceDir() / "tests" / "golden" / "heads" / golden));
  ASSERT_GE(texts.size(), 6u);
  ThreadPool pool(2);
  const auto model =
      LanguageModel::Load(testing::SourceDir() / "models" / "tales" / "target", &pool, layer);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto pages = *KvPagePool::Create((*model)->kv_shape(), uint64_t{1} << 26);
  SelfDrafter& eagle = *(*model)->self_drafter();
  size_t deepest = 0;
  for (const nlohmann::json& text : texts) {
    const auto ids = text["input_ids"].get<std::vector<int32_t>>();
    KvCache cache(pages.get(), 1024);
    const ForwardItem item = {.cache = &cache, .token_ids = ids, .parents = {}, .num_logits = 1};
    ASSERT_TRUE((*model)->Forward({&item, 1}).ok());
    const auto guess = [&](const GuessLimits& limits) {
      GuessOrder order = {.text = {&cache, ids},
                          .next_token_id = text["next_token_id"].get<int32_t>(),
                          .limits = limits,
                          .tree = {}};
      EXPECT_TRUE(eagle.CatchUp({&order.text, 1}).ok());
      EXPECT_TRUE(eagle.Propose({&order, 1}).ok());
      return std::move(order.tree);
    };
    const GuessTree first = guess({.depth = 1, .nodes = 8});
    EXPECT_EQ(first.token_ids.size(), 8u);
    ExpectGolden(text["first"], first.token_ids, first.chances);
    // An unlikely chain ends early.
    const GuessTree chain = guess({.depth = 4, .nodes = 0});
    ASSERT_FALSE(chain.token_ids.empty());
    ExpectGolden(text["chain"], chain.token_ids, chain.chances);
    deepest = std::max(deepest, chain.token_ids.size());
  }
  EXPECT_EQ(deepest, longest_chain);
}

TEST(EagleGoldenTest, TheEmbeddedLayerGuessesWhatTransformersDoes) {
  ExpectWhatTransformersGuesses(testing::SourceDir() / "models" / "tales" / "eagle",
                                "tales_eagle.json");
}

TEST(EagleGoldenTest, TheEmbeddedTargetWithoutSomeLayersGuessesWhatTransformersDoes) {
  ExpectWhatTransformersGuesses(testing::SourceDir() / "models" / "tales" / "layer_skip",
                                "tales_layer_skip.json", 2);
}

TEST(EagleGoldenTest, TheEmbeddedLookAheadRowsGuessWhatTransformersDoes) {
  ExpectWhatTransformersGuesses(testing::SourceDir() / "models" / "tales" / "pass",
                                "tales_pass.json");
}

TEST(EagleGoldenTest, ALayerOfEagle3GuessesWhatTransformersDoes) {
  const testing::TempDir dir;
  // The layer that tests/golden/make_heads_golden.py has make_random_model write.
  testing::WriteRandomEagle(dir / "eagle3", {.hidden_size = 512,
                                             .vocabulary_size = 4096,
                                             .num_heads = 8,
                                             .num_kv_heads = 4,
                                             .head_size = 64,
                                             .intermediate_size = 96,
                                             .is_third = true,
                                             .truncated_vocabulary_size = 600,
                                             .layer_ids = {1, 2, 4},
                                             .output_scale = 0.2});
  ExpectWhatTransformersGuesses(dir / "eagle3", "tales_eagle3.json");
}

}  // namespace
}  // namespace tandem::eagle_test
