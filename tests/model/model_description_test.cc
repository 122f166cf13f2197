#include "common/model/model_description.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "nlohmann/json.hpp"
#include "tests/model/files.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

class ModelDescriptionTest : public ::testing::Test {
 protected:
  static Json Good() {
    return Json::parse(R"({
      "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
      "vocab_size": 100, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
      "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "rope_scaling": null, "eos_token_id": 99})");
  }

  absl::StatusOr<ModelDescription> Load(const Json& config) { return LoadText(config.dump()); }
  absl::StatusOr<ModelDescription> LoadText(const std::string& config) {
    testing::WriteFile(folder_ / "config.json", config);
    return ModelDescription::Load(folder_.path());
  }

  void ExpectRefused(const absl::StatusOr<ModelDescription>& config, const std::string& fault) {
    ASSERT_FALSE(config.ok()) << "want: " << fault;
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(config.status().message()), HasSubstr(fault));
  }

  // Checks that config.json with one changed field is refused.
  void ExpectRefused(const std::string& field, const Json& value, const std::string& fault) {
    Json config = Good();
    config[field] = value;
    ExpectRefused(Load(config), "config.json: " + fault);
  }

  testing::TempDir folder_;
};

TEST_F(ModelDescriptionTest, ReadsALlama) {
  const auto config = Load(Good());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->vocabulary_size, 100u);
  EXPECT_EQ(config->hidden_size, 32u);
  EXPECT_EQ(config->mlp.inner_size, 64u);
  EXPECT_EQ(config->num_layers, 2u);
  EXPECT_EQ(config->attention.num_heads, 4u);
  EXPECT_EQ(config->attention.num_kv_heads, 2u);
  EXPECT_EQ(config->attention.head_size, 8u);
  EXPECT_EQ(config->max_position_embeddings, 128u);
  EXPECT_EQ(config->norm_eps, 1e-5);
  EXPECT_EQ(config->attention.rope.theta, 10000.0);
  EXPECT_FALSE(config->attention.rope.scaling.has_value());
  EXPECT_FALSE(config->attention.qkv_bias);
  EXPECT_FALSE(config->attention.output_bias);
  EXPECT_FALSE(config->attention.has_head_norms);
  EXPECT_FALSE(config->mlp.has_bias);
  EXPECT_FALSE(config->tied_embeddings);
  EXPECT_THAT(config->end_of_text_ids, ElementsAre(99));
}

TEST_F(ModelDescriptionTest, AQwen2HasBiasesOnlyForQueriesKeysAndValues) {
  Json json = Good();
  json["architectures"] = Json::array({"Qwen2ForCausalLM"});
  json["model_type"] = "qwen2";
  // Qwen2.5 has a window that is not in use.
  json["use_sliding_window"] = false;
  json["sliding_window"] = 64;
  json["max_window_layers"] = 1;
  for (const bool unread : {false, true}) {
    json["attention_bias"] = unread;
    json["mlp_bias"] = unread;
    const auto model = Load(json);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_TRUE(model->attention.qkv_bias);
    EXPECT_FALSE(model->attention.output_bias);
    EXPECT_FALSE(model->attention.has_head_norms);
    EXPECT_FALSE(model->mlp.has_bias);
    EXPECT_EQ(model->attention.head_size, 8u);
  }
}

TEST_F(ModelDescriptionTest, AQwen3HasNormsOfItsHeads) {
  Json json = Good();
  json["architectures"] = Json::array({"Qwen3ForCausalLM"});
  json["model_type"] = "qwen3";
  json["layer_types"] = Json::array({"full_attention", "full_attention"});
  for (const bool has_bias : {false, true}) {
    json["attention_bias"] = has_bias;
    const auto model = Load(json);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_TRUE(model->attention.has_head_norms);
    EXPECT_EQ(model->attention.qkv_bias, has_bias);
    EXPECT_EQ(model->attention.output_bias, has_bias);
    EXPECT_FALSE(model->mlp.has_bias);
    EXPECT_EQ(model->attention.head_size, 128u) << "transformers' default, not hidden / heads";
  }
  json["head_dim"] = 16;
  EXPECT_EQ(Load(json)->attention.head_size, 16u);
}

TEST_F(ModelDescriptionTest, TheModelTypeNamesTheArchitectureIfNothingElseDoes) {
  Json json = Good();
  json.erase("architectures");
  json["model_type"] = "qwen3";
  json["head_dim"] = 8;
  const auto model = Load(json);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE(model->attention.has_head_norms);
}

TEST_F(ModelDescriptionTest, RefusesAModelTypeThatContradictsTheArchitecture) {
  Json json = Good();
  json["model_type"] = "gpt2";
  ExpectRefused(Load(json),
                "model_type is \"gpt2\" (want \"llama\", because architectures names "
                "LlamaForCausalLM)");
}

TEST_F(ModelDescriptionTest, RefusesAWindowOfQwenThatIsInUse) {
  for (const auto& [name, model_type] :
       {std::pair("Qwen2ForCausalLM", "qwen2"), std::pair("Qwen3ForCausalLM", "qwen3")}) {
    Json json = Good();
    json["architectures"] = Json::array({name});
    json["model_type"] = model_type;
    json["use_sliding_window"] = true;
    json["sliding_window"] = 64;
    ExpectRefused(Load(json), "use_sliding_window is true, with a sliding_window of 64 (supported");
    json["sliding_window"] = 128;  // not shorter than the context, so every row is visible
    EXPECT_TRUE(Load(json).ok()) << Load(json).status();
    json["layer_types"] = Json::array({"full_attention", "sliding_attention"});
    ExpectRefused(Load(json), "layer_types is [\"full_attention\",\"sliding_attention\"]");
  }
}

TEST_F(ModelDescriptionTest, TakesTransformersDefaultsForMissingFields) {
  Json json = Good();
  for (const char* field :
       {"architectures", "model_type", "hidden_act", "num_key_value_heads",
        "max_position_embeddings", "rms_norm_eps", "rope_theta", "rope_scaling", "eos_token_id"}) {
    json.erase(field);
  }
  const auto config = Load(json);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->attention.num_kv_heads, 4u);
  EXPECT_EQ(config->max_position_embeddings, 2048u);
  EXPECT_EQ(config->norm_eps, 1e-6);
  EXPECT_EQ(config->attention.rope.theta, 10000.0);
  EXPECT_TRUE(config->end_of_text_ids.empty());
}

TEST_F(ModelDescriptionTest, ReadsBothSpellingsOfRopeScaling) {
  for (const char* type : {"type", "rope_type"}) {
    Json json = Good();
    json["rope_theta"] = 500000;
    json["rope_scaling"] = {{type, "llama3"},
                            {"factor", 32},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", 8192}};
    const auto config = Load(json);
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->attention.rope.theta, 500000.0);
    ASSERT_TRUE(config->attention.rope.scaling.has_value());
    EXPECT_EQ(config->attention.rope.scaling->factor, 32.0);
    EXPECT_EQ(config->attention.rope.scaling->original_max_position_embeddings, 8192.0);
  }
}

TEST_F(ModelDescriptionTest, ReadsRopeParametersOfTransformers5) {
  Json json = Good();
  json.erase("rope_theta");
  json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 250000.0}};
  const auto config = Load(json);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->attention.rope.theta, 250000.0);
  EXPECT_FALSE(config->attention.rope.scaling.has_value());
}

TEST_F(ModelDescriptionTest, TakesEndOfTextFromGenerationConfigFirst) {
  testing::WriteFile(folder_ / "generation_config.json", R"({"eos_token_id": [7, 9]})");
  auto config = Load(Good());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->end_of_text_ids, ElementsAre(7, 9));
  testing::WriteFile(folder_ / "generation_config.json", R"({"temperature": 0.8})");
  config = Load(Good());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->end_of_text_ids, ElementsAre(99));
}

TEST_F(ModelDescriptionTest, RefusesABadEndOfText) {
  ExpectRefused("eos_token_id", 100, "eos_token_id has 100 (want token ids under vocab_size, 100)");
  ExpectRefused("eos_token_id", -1, "eos_token_id has -1");
  ExpectRefused("eos_token_id", Json::array({1, "x"}), "eos_token_id has \"x\"");
  testing::WriteFile(folder_ / "generation_config.json", R"({"eos_token_id": 5000})");
  ExpectRefused(Load(Good()), "generation_config.json: eos_token_id has 5000");
  testing::WriteFile(folder_ / "generation_config.json", "[]");
  ExpectRefused(Load(Good()), "generation_config.json: is not a JSON object");
}

TEST_F(ModelDescriptionTest, RefusesZeroOrAbsurdSizes) {
  ExpectRefused("num_attention_heads", 0,
                "num_attention_heads is 0 (want a whole number from 1 to 4096)");
  ExpectRefused("num_key_value_heads", 0, "num_key_value_heads is 0 (want");
  ExpectRefused("num_hidden_layers", 0, "num_hidden_layers is 0 (want");
  ExpectRefused("num_hidden_layers", 1'000'000'000,
                "num_hidden_layers is 1000000000 (want a whole number from 1 to 1024)");
  ExpectRefused("vocab_size", 0, "vocab_size is 0 (want");
  ExpectRefused("hidden_size", 0, "hidden_size is 0 (want");
  ExpectRefused("intermediate_size", 0, "intermediate_size is 0 (want");
  ExpectRefused("max_position_embeddings", 0, "max_position_embeddings is 0 (want");
  ExpectRefused("head_dim", 0, "head_dim is 0 (want");
  ExpectRefused("head_dim", 4096, "head_dim is 4096 (want");
}

TEST_F(ModelDescriptionTest, RefusesHeadsThatDoNotDivide) {
  ExpectRefused("num_key_value_heads", 3,
                "num_key_value_heads is 3 (want a divisor of num_attention_heads, 4)");
  ExpectRefused("num_key_value_heads", 8, "num_key_value_heads is 8 (want a divisor");
  ExpectRefused("hidden_size", 34,
                "hidden_size is 34 (want a multiple of num_attention_heads, 4, or a head_dim)");
  ExpectRefused("head_dim", 7, "head_dim is 7 (want an even number");
  ExpectRefused("hidden_size", 20, "head_dim is 5 (want an even number");
  ExpectRefused("hidden_size", 2, "hidden_size is 2 (want a multiple");
}

TEST_F(ModelDescriptionTest, RefusesWrongTypes) {
  ExpectRefused("hidden_size", "32", "hidden_size is \"32\" (want a whole number");
  ExpectRefused("hidden_size", 32.0, "hidden_size is 32.0 (want a whole number");
  ExpectRefused("num_hidden_layers", -2, "num_hidden_layers is -2 (want a whole number");
  ExpectRefused("attention_bias", 1, "attention_bias is 1 (want true or false)");
  ExpectRefused("mlp_bias", "no", "mlp_bias is \"no\" (want true or false)");
  ExpectRefused("tie_word_embeddings", Json::array(), "tie_word_embeddings is []");
  ExpectRefused("rope_scaling", 2, "rope_scaling is 2 (want an object)");
  ExpectRefused("rope_theta", "10000", "rope_theta is \"10000\" (want a number");
  ExpectRefused("hidden_act", 3, "hidden_act is 3 (want a string)");
  ExpectRefused("vocab_size", Json(), "vocab_size is missing");
}

TEST_F(ModelDescriptionTest, RefusesBadRopeAndEps) {
  ExpectRefused("rope_theta", -1.0, "rope_theta is -1.0 (want a number from");
  ExpectRefused("rope_theta", 0, "rope_theta is 0 (want");
  ExpectRefused("rms_norm_eps", -1e-5, "rms_norm_eps is -1e-05 (want");
  ExpectRefused("rms_norm_eps", 0, "rms_norm_eps is 0 (want");
  // Python writes NaN and Infinity, but JSON does not have them.
  std::string text = Good().dump();
  const std::string theta = "\"rope_theta\":10000.0";
  ASSERT_NE(text.find(theta), std::string::npos);
  for (const char* value : {"NaN", "Infinity", "-Infinity", "1e999"}) {
    std::string changed = text;
    changed.replace(changed.find(theta), theta.size(), "\"rope_theta\":" + std::string(value));
    ExpectRefused(LoadText(changed), "config.json: at \"rope_theta\": not valid JSON");
  }
}

TEST_F(ModelDescriptionTest, RefusesBadLlama3Scaling) {
  const Json good = {{"rope_type", "llama3"},
                     {"factor", 8.0},
                     {"low_freq_factor", 1.0},
                     {"high_freq_factor", 4.0},
                     {"original_max_position_embeddings", 8192}};
  const auto with = [&](const char* field, const Json& value) {
    Json scaling = good;
    scaling[field] = value;
    return scaling;
  };
  ExpectRefused("rope_scaling", with("factor", 0.5), "rope_scaling.factor is 0.5 (want");
  ExpectRefused("rope_scaling", with("factor", Json()), "rope_scaling.factor is missing");
  ExpectRefused("rope_scaling", with("low_freq_factor", 0), "rope_scaling.low_freq_factor is 0");
  ExpectRefused("rope_scaling", with("high_freq_factor", 1.0),
                "rope_scaling.high_freq_factor is 1.0 (want more than low_freq_factor, 1.0)");
  ExpectRefused("rope_parameters", with("original_max_position_embeddings", -5),
                "rope_parameters.original_max_position_embeddings is -5");
}

TEST_F(ModelDescriptionTest, NamesUnsupportedSettings) {
  ExpectRefused("architectures", Json::array({"GPT2LMHeadModel"}),
                "architectures is [\"GPT2LMHeadModel\"] (supported: LlamaForCausalLM");
  ExpectRefused("architectures", "LlamaForCausalLM", "architectures is \"LlamaForCausalLM\"");
  ExpectRefused("hidden_act", "gelu", "hidden_act is \"gelu\" (supported: silu)");
  ExpectRefused("rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}},
                "rope_scaling.rope_type is \"yarn\" (supported: default, llama3)");
  ExpectRefused("rope_scaling", {{"type", "linear"}, {"factor", 4.0}},
                "rope_scaling.type is \"linear\" (supported: default, llama3)");
  ExpectRefused("rope_parameters", {{"rope_type", "longrope"}},
                "rope_parameters.rope_type is \"longrope\"");
  ExpectRefused("sliding_window", 64, "sliding_window is 64 (supported: null");
  ExpectRefused("partial_rotary_factor", 0.5, "partial_rotary_factor is not 1");
  ExpectRefused("quantization_config", {{"quant_method", "gptq"}},
                "quantization_config is {\"quant_method\":\"gptq\"}");
  Json config = Good();
  config.erase("architectures");
  config["model_type"] = "gemma";
  ExpectRefused(Load(config),
                "config.json: model_type is \"gemma\" (supported: llama, mistral, qwen2, qwen3)");
}

TEST_F(ModelDescriptionTest, RefusesHostileJson) {
  ExpectRefused(LoadText(""), "config.json: not valid JSON");
  ExpectRefused(LoadText("[]"), "config.json: is not a JSON object");
  ExpectRefused(LoadText(R"({"vocab_size":1,"vocab_size":2})"),
                "config.json: at \"vocab_size\": key given twice");
  ExpectRefused(LoadText(std::string(1 << 20, '[')), "config.json: nested deeper than 16 levels");
  ExpectRefused(LoadText(std::string((1 << 20) + 1, ' ')),
                "config.json: has 1048577 bytes of JSON (at most 1048576)");
  std::string many = "{\"x\":[0";
  for (int i = 0; i < 70'000; ++i) many += ",0";
  ExpectRefused(LoadText(many + "]}"), "config.json: at \"x\": more than 65536 values");
}

TEST_F(ModelDescriptionTest, SaysThatTheFileIsMissing) {
  const auto config = ModelDescription::Load(folder_.path());
  EXPECT_EQ(config.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(config.status().message()),
              AllOf(HasSubstr("config.json"), HasSubstr("cannot be opened")));
}

}  // namespace
}  // namespace tandem
