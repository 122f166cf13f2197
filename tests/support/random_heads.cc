#include "tests/support/random_heads.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "tests/support/random_tensors.h"

namespace tandem::testing {
namespace {

// Returns `count` of the ids, in no order.
std::vector<int64_t> SomeIds(size_t vocabulary_size, size_t count, uint64_t seed) {
  std::vector<int64_t> ids(vocabulary_size);
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), std::mt19937_64(seed));
  ids.resize(count);
  return ids;
}

std::vector<RandomTensor> TensorsOf(const RandomHeadsSpec& spec) {
  const size_t hidden = spec.hidden_size;
  const double deviation = 1.0 / std::sqrt(static_cast<double>(hidden));
  const bool is_truncated = spec.truncated_vocabulary_size > 0;
  const size_t tokens = is_truncated ? spec.truncated_vocabulary_size : spec.vocabulary_size;
  std::vector<RandomTensor> tensors;
  for (size_t head = 0; head < spec.num_heads; ++head) {
    for (size_t layer = 0; layer < spec.num_layers; ++layer) {
      const std::string name =
          "blocks." + std::to_string(head) + ".layers." + std::to_string(layer);
      tensors.push_back({name + ".weight", {hidden, hidden}, 0, deviation});
      if (spec.has_bias) tensors.push_back({name + ".bias", {hidden}, 0, deviation});
    }
    if (spec.uses_target_output || (spec.shares_output && head > 0)) continue;
    tensors.push_back(
        {"lm_heads." + std::to_string(head) + ".weight", {tokens, hidden}, 0, spec.output_scale});
  }
  if (is_truncated) {
    tensors.push_back(
        {"token_map", {tokens}, 0, 0, SomeIds(spec.vocabulary_size, tokens, spec.seed)});
  }
  return tensors;
}

RandomTensor RandomMatrix(const std::string& name, size_t out, size_t in) {
  return {name + ".weight", {out, in}, 0, 1.0 / std::sqrt(static_cast<double>(in))};
}

nlohmann::ordered_json ConfigOf(const RandomEagleSpec& spec) {
  nlohmann::ordered_json config = {{"architectures", {"LlamaForCausalLM"}},
                                   {"model_type", "llama"},
                                   {"hidden_act", "silu"},
                                   {"hidden_size", spec.hidden_size},
                                   {"intermediate_size", spec.intermediate_size},
                                   {"num_attention_heads", spec.num_heads},
                                   {"num_key_value_heads", spec.num_kv_heads},
                                   {"head_dim", spec.head_size},
                                   {"num_hidden_layers", 1},
                                   {"max_position_embeddings", 512},
                                   {"rms_norm_eps", 1e-5},
                                   {"rope_theta", 10000.0},
                                   {"vocab_size", spec.vocabulary_size}};
  if (spec.is_third) {
    config["architectures"] = {spec.has_middle_names ? "LlamaForCausalLMEagle3"
                                                     : "Eagle3LlamaForCausalLM"};
  }
  if (spec.truncated_vocabulary_size > 0)
    config["draft_vocab_size"] = spec.truncated_vocabulary_size;
  if (!spec.layer_ids.empty()) {
    (spec.has_middle_names ? config["eagle_config"] : config)["eagle_aux_hidden_state_layer_ids"] =
        spec.layer_ids;
  }
  return config;
}

std::vector<RandomTensor> TensorsOf(const RandomEagleSpec& spec) {
  const size_t hidden = spec.hidden_size;
  const size_t queries = spec.num_heads * spec.head_size;
  const size_t keys = spec.num_kv_heads * spec.head_size;
  const size_t parts = spec.layer_ids.empty() ? 3 : spec.layer_ids.size();
  const size_t input = spec.is_third ? 2 * hidden : hidden;  // what the attention takes
  const bool is_truncated = spec.truncated_vocabulary_size > 0;
  const size_t tokens = is_truncated ? spec.truncated_vocabulary_size : spec.vocabulary_size;
  const std::string layer = spec.is_third && spec.has_middle_names ? "midlayer." : "layers.0.";
  std::vector<RandomTensor> tensors = {
      RandomMatrix("fc", hidden, (spec.is_third ? parts : 2) * hidden),
      RandomMatrix(layer + "self_attn.q_proj", queries, input),
      RandomMatrix(layer + "self_attn.k_proj", keys, input),
      RandomMatrix(layer + "self_attn.v_proj", keys, input),
      RandomMatrix(layer + "self_attn.o_proj", hidden, queries),
      {layer + "post_attention_layernorm.weight", {hidden}, 1, 0.1},
      RandomMatrix(layer + "mlp.gate_proj", spec.intermediate_size, hidden),
      RandomMatrix(layer + "mlp.up_proj", spec.intermediate_size, hidden),
      RandomMatrix(layer + "mlp.down_proj", hidden, spec.intermediate_size)};
  if (spec.is_third) {
    for (const std::string& name :
         {layer + "input_layernorm", layer + "hidden_norm", std::string("norm")}) {
      tensors.push_back({name + ".weight", {hidden}, 1, 0.1});
    }
  } else if (spec.has_bias) {
    tensors.push_back({"fc.bias", {hidden}, 0, 0.1});
  }
  if (spec.has_output) {
    tensors.push_back({"lm_head.weight", {tokens, hidden}, 0, spec.output_scale});
  }
  if (is_truncated) {
    std::vector<int64_t> offsets = SomeIds(spec.vocabulary_size, tokens, spec.seed);
    for (size_t i = 0; i < tokens; ++i) offsets[i] -= static_cast<int64_t>(i);
    tensors.push_back({"d2t", {tokens}, 0, 0, offsets});
  }
  return tensors;
}

void WriteConfig(const std::filesystem::path& folder, const nlohmann::ordered_json& config) {
  std::filesystem::create_directories(folder);
  std::ofstream file = CreateFile(folder / "config.json");
  file << config.dump(1) << '\n';
  CloseFile(file, folder / "config.json");
}

}  // namespace

void WriteRandomEagle(const std::filesystem::path& folder, const RandomEagleSpec& spec) {
  WriteConfig(folder, ConfigOf(spec));
  WriteRandomTensors(folder / "model.safetensors", TensorsOf(spec), spec.dtype, spec.seed);
}

void WriteRandomLookAhead(const std::filesystem::path& folder, const RandomLookAheadSpec& spec) {
  WriteConfig(folder, {{"hidden_size", spec.hidden_size}, {"num_lookahead_tokens", spec.num_rows}});
  const RandomTensor table = {
      "lookahead.weight", {spec.num_rows, spec.hidden_size}, 0, spec.deviation};
  WriteRandomTensors(folder / "model.safetensors", {&table, 1}, spec.dtype, spec.seed);
}

void WriteSkippedLayers(const std::filesystem::path& folder, const nlohmann::json& skipped,
                        const nlohmann::json& num_layers) {
  WriteConfig(folder, {{"num_hidden_layers", num_layers}, {"skipped_layers", skipped}});
}

void WriteRandomHeads(const std::filesystem::path& folder, const RandomHeadsSpec& spec) {
  nlohmann::ordered_json config = {
      {"architectures", {"MedusaModel"}}, {"model_type", "medusa"},
      {"hidden_size", spec.hidden_size},  {"vocab_size", spec.vocabulary_size},
      {"num_heads", spec.num_heads},      {"num_hidden_layers", spec.num_layers},
      {"medusa_fc_bias", spec.has_bias},  {"original_lm_head", spec.shares_output}};
  if (spec.truncated_vocabulary_size > 0) {
    config["truncated_vocab_size"] = spec.truncated_vocabulary_size;
  }
  WriteConfig(folder, config);
  WriteRandomTensors(folder / "model.safetensors", TensorsOf(spec), spec.dtype, spec.seed);
}

}  // namespace tandem::testing
