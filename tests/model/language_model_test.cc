#include "common/model/language_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/model/model_fingerprint.h"
#include "kernels/thread_pool.h"
#include "nlohmann/json.hpp"
#include "tests/model/files.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

// Works on a copy of a small model that tests may spoil.
class LanguageModelTest : public ::testing::Test {
 protected:
  void SetUp() override { UseModel("f32_mqa_untied"); }

  // Copies a folder of tests/golden/model.
  void UseModel(const std::string& name) {
    std::filesystem::copy(std::filesystem::path(TANDEM_SOURCE_DIR) / "tests/golden/model" / name,
                          folder_.path(),
                          std::filesystem::copy_options::recursive |
                              std::filesystem::copy_options::overwrite_existing);
  }

  void ChangeConfig(const std::string& field, const Json& value) {
    Json config = Json::parse(testing::ReadFile(folder_ / "config.json"));
    config[field] = value;
    testing::WriteFile(folder_ / "config.json", config.dump());
  }

  // Replaces a text in the header of the weights with a text of the same length.
  void ChangeHeader(const std::string& old_text, const std::string& new_text) {
    ASSERT_EQ(old_text.size(), new_text.size());
    std::string bytes = testing::ReadFile(folder_ / "model.safetensors");
    const size_t at = bytes.find(old_text);
    ASSERT_NE(at, std::string::npos);
    bytes.replace(at, old_text.size(), new_text);
    testing::WriteFile(folder_ / "model.safetensors", bytes);
  }

  void ExpectLoadRefused(const std::string& fault) {
    const auto model = LanguageModel::Load(folder_.path(), &pool_);
    ASSERT_FALSE(model.ok()) << "want: " << fault;
    EXPECT_THAT(std::string(model.status().message()), HasSubstr(fault));
  }

  // Loads the model, and makes a pool of two pages.
  std::unique_ptr<LanguageModel> Load() {
    auto model = LanguageModel::Load(folder_.path(), &pool_);
    EXPECT_TRUE(model.ok()) << model.status();
    pages_ = *KvPagePool::Create((*model)->description(),
                                 HostKvMemory::Bytes((*model)->description(), 128));
    return std::move(model).value();
  }

  ThreadPool pool_{1};
  std::unique_ptr<KvPagePool> pages_;
  testing::TempDir folder_;
};

TEST_F(LanguageModelTest, ReportsItsSizes) {
  const auto model = Load();
  EXPECT_EQ(model->description().vocabulary_size, 64u);
  EXPECT_EQ(model->weight_bytes(), std::filesystem::file_size(folder_ / "model.safetensors"));
}

TEST_F(LanguageModelTest, FingerprintTellsModelsApart) {
  const std::string first = Load()->fingerprint();
  EXPECT_EQ(first.size(), 32u);
  EXPECT_EQ(Load()->fingerprint(), first);
  ChangeConfig("rms_norm_eps", 1e-3);
  const std::string other_constant = Load()->fingerprint();
  EXPECT_NE(other_constant, first);
  ChangeConfig("max_position_embeddings", 100);  // a limit, which changes no number
  EXPECT_EQ(Load()->fingerprint(), other_constant);
  // Change one bit in the last byte of each kind of tensor.
  const std::string file = testing::ReadFile(folder_ / "model.safetensors");
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
  const Json header = Json::parse(file.substr(sizeof(header_bytes), header_bytes));
  int tensors = 0;
  for (const auto& [name, tensor] : header.items()) {
    if (name == "__metadata__") continue;
    std::string spoiled = file;
    const auto end = tensor.at("data_offsets").at(1).get<size_t>();
    spoiled[sizeof(header_bytes) + header_bytes + end - 1] ^= 1;
    testing::WriteFile(folder_ / "model.safetensors", spoiled);
    EXPECT_NE(Load()->fingerprint(), other_constant) << name;
    ++tensors;
  }
  EXPECT_GT(tensors, 11);
  testing::WriteFile(folder_ / "model.safetensors", file);
  EXPECT_EQ(Load()->fingerprint(), other_constant);
}

TEST(ModelFingerprintTest, SamplesOfALargeTensorReachFromTheFirstByteToTheLast) {
  constexpr size_t kPieces = 16;
  constexpr size_t kPieceBytes = 4096;
  std::vector<float> values(4 * kPieces * kPieceBytes / sizeof(float));
  ModelWeights weights;
  weights.embedding = {.weight = values.data(),
                       .dtype = DType::kF32,
                       .out_features = values.size() / 64,
                       .in_features = 64,
                       .bias = {}};
  const ModelDescription config;
  const std::string fingerprint = FingerprintModel(weights, config);
  auto* bytes = reinterpret_cast<std::byte*>(values.data());
  const size_t num_bytes = values.size() * sizeof(float);
  const auto changes = [&](size_t at) {
    bytes[at] ^= std::byte{1};
    const bool other = FingerprintModel(weights, config) != fingerprint;
    bytes[at] ^= std::byte{1};
    return other;
  };
  for (size_t piece = 0; piece < kPieces; ++piece) {
    const size_t begin = (num_bytes - kPieceBytes) * piece / (kPieces - 1);
    EXPECT_TRUE(changes(begin)) << piece;
    EXPECT_TRUE(changes(begin + kPieceBytes - 1)) << piece;
    if (piece + 1 < kPieces) {
      EXPECT_FALSE(changes(begin + kPieceBytes)) << piece;
    }
  }
  EXPECT_TRUE(changes(num_bytes - 1));
}

TEST_F(LanguageModelTest, RefusesAVocabularyThatDiffersFromTheEmbedding) {
  ChangeConfig("vocab_size", 65);
  ExpectLoadRefused(
      "model.safetensors: tensor \"model.embed_tokens.weight\" has shape [64, 24], config.json "
      "wants "
      "[65, 24] (vocab_size, hidden_size)");
}

TEST_F(LanguageModelTest, RefusesShapesThatDifferFromTheConfig) {
  ChangeConfig("num_key_value_heads", 2);
  ExpectLoadRefused("k_proj.weight\" has shape [6, 24], config.json wants [12, 24]");
  ChangeConfig("num_key_value_heads", 1);
  ChangeConfig("intermediate_size", 41);
  ExpectLoadRefused("gate_proj.weight\" has shape [40, 24], config.json wants [41, 24]");
}

TEST_F(LanguageModelTest, RefusesAMissingTensorByName) {
  ChangeConfig("num_hidden_layers", 3);
  ExpectLoadRefused(
      "model.safetensors: tensor \"model.layers.2.input_layernorm.weight\" is missing");
  ChangeConfig("num_hidden_layers", 2);
  ChangeConfig("attention_bias", true);
  ExpectLoadRefused("tensor \"model.layers.0.self_attn.q_proj.bias\" is missing");
  ChangeConfig("attention_bias", false);
  ChangeHeader("\"lm_head.weight\"", "\"lm_tail.weight\"");
  ExpectLoadRefused("tensor \"lm_head.weight\" is missing");
}

TEST_F(LanguageModelTest, AQwen3NeedsNormsOfItsHeads) {
  UseModel("f32_qwen3");
  const std::string fingerprint = Load()->fingerprint();
  const std::string file = testing::ReadFile(folder_ / "model.safetensors");
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
  const Json header = Json::parse(file.substr(sizeof(header_bytes), header_bytes));
  for (const std::string name : {"q_norm", "k_norm"}) {
    const std::string tensor = "model.layers.1.self_attn." + name + ".weight";
    std::string spoiled = file;
    const auto end = header.at(tensor).at("data_offsets").at(1).get<size_t>();
    spoiled[sizeof(header_bytes) + header_bytes + end - 1] ^= 1;
    testing::WriteFile(folder_ / "model.safetensors", spoiled);
    EXPECT_NE(Load()->fingerprint(), fingerprint) << name;
    testing::WriteFile(folder_ / "model.safetensors", file);
    ChangeHeader("layers.1.self_attn." + name, "layers.1.self_attn." + name.substr(0, 5) + "s");
    ExpectLoadRefused("tensor \"" + tensor + "\" is missing");
    testing::WriteFile(folder_ / "model.safetensors", file);
  }
}

TEST_F(LanguageModelTest, RefusesWeightsOfAnUnsupportedType) {
  ChangeHeader(R"("dtype":"F32","shape":[64,24])", R"("dtype":"I32","shape":[64,24])");
  ExpectLoadRefused("is I32 (supported: F32, BF16, F16)");
}

TEST_F(LanguageModelTest, RefusesAMissingFolder) {
  const auto model = LanguageModel::Load(folder_ / "absent", &pool_);
  EXPECT_EQ(model.status().code(), absl::StatusCode::kNotFound);
}

TEST_F(LanguageModelTest, DetectsWeightsThatAreCutOffWhileInUse) {
  const auto model = Load();
  KvCache cache(pages_.get(), 8);
  const std::vector<int32_t> ids = {1, 2, 3};
  const ForwardItem item = {.cache = &cache, .token_ids = ids, .parents = {}, .num_logits = 1};
  ASSERT_TRUE(model->Forward({&item, 1}).ok());
  std::filesystem::resize_file(folder_ / "model.safetensors", 5000);
  const auto logits = model->Forward({&item, 1});
  EXPECT_EQ(logits.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(logits.status().message()),
              AllOf(HasSubstr("model.safetensors: has 5000 bytes"), HasSubstr("truncated")));
  EXPECT_EQ(cache.length(), 3u);
}

TEST_F(LanguageModelTest, RefusesABadPassAndChangesNothing) {
  const auto model = Load();
  KvCache cache(pages_.get(), 8);
  const auto expect_refused = [&](std::vector<int32_t> ids, std::vector<int32_t> parents,
                                  size_t num_logits, const std::string& fault) {
    const ForwardItem item = {
        .cache = &cache, .token_ids = ids, .parents = parents, .num_logits = num_logits};
    const auto logits = model->Forward({&item, 1});
    EXPECT_EQ(logits.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(logits.status().message()), HasSubstr(fault));
    EXPECT_EQ(cache.length(), 0u);
  };
  expect_refused({}, {}, 0, "item 0: has no cache or no tokens");
  expect_refused({1, 64}, {}, 0, "item 0: token id 64 is not in [0, 64)");
  expect_refused({-1}, {}, 0, "item 0: token id -1 is not in [0, 64)");
  expect_refused({1, 2}, {}, 3, "item 0: wants logits of 3 of its 2 rows");
  expect_refused({1}, {-1, 0}, 1, "item 0: has 2 parents for 1 rows");
  expect_refused({1, 2}, {-1, 1}, 1,
                 "item 0: row 1 of its tree has parent 1 (want an earlier row of the tree or -1)");
  expect_refused({1, 2}, {-2, 0}, 1, "item 0: row 0 of its tree has parent -2");
  expect_refused(std::vector<int32_t>(9, 1), {}, 1, "item 0: adds 9 rows to 0 of 8");
}

TEST_F(LanguageModelTest, AnEmptyPassGivesNothing) {
  const auto model = Load();
  const auto logits = model->Forward({});
  ASSERT_TRUE(logits.ok()) << logits.status();
  EXPECT_EQ(logits->rows, 0u);
}

TEST_F(LanguageModelTest, APassWithoutPagesIsRefusedAndAddsNoRow) {
  const auto model = Load();
  KvCache full(pages_.get(), 128);
  ASSERT_TRUE(full.Reserve(65).ok());
  KvCache cache(pages_.get(), 128);
  const std::vector<int32_t> ids = {1};
  const ForwardItem items[] = {{.cache = &full, .token_ids = ids, .parents = {}, .num_logits = 1},
                               {.cache = &cache, .token_ids = ids, .parents = {}, .num_logits = 1}};
  EXPECT_EQ(model->Forward(items).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(full.length(), 0u);
  EXPECT_EQ(cache.length(), 0u);
  full.TruncateTo(0);
  EXPECT_TRUE(model->Forward(items).ok());
}

TEST_F(LanguageModelTest, ACacheCountsItsRows) {
  const auto model = Load();
  KvCache cache(pages_.get(), 8);
  EXPECT_EQ(cache.capacity(), 8u);
  const std::vector<int32_t> ids = {1, 2, 3};
  const ForwardItem item = {.cache = &cache, .token_ids = ids, .parents = {}, .num_logits = 2};
  const auto logits = model->Forward({&item, 1});
  ASSERT_TRUE(logits.ok()) << logits.status();
  EXPECT_EQ(logits->rows, 2u);
  EXPECT_EQ(cache.length(), 3u);
  cache.TruncateTo(1);
  EXPECT_EQ(cache.length(), 1u);
  EXPECT_DEATH(cache.TruncateTo(2), "KV cache: TruncateTo 2, limit 1");
}

}  // namespace
}  // namespace tandem
