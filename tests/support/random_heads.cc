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

// Returns different ids in no order.
std::vector<int64_t> TokenMap(const RandomHeadsSpec& spec) {
  std::vector<int64_t> ids(spec.vocabulary_size);
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), std::mt19937_64(spec.seed));
  ids.resize(spec.truncated_vocabulary_size);
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
  if (is_truncated) tensors.push_back({"token_map", {tokens}, 0, 0, TokenMap(spec)});
  return tensors;
}

}  // namespace

void WriteRandomEagle(const std::filesystem::path& folder, const RandomEagleSpec& spec) {
  std::filesystem::create_directories(folder);
  const nlohmann::ordered_json config = {{"architectures", {"LlamaForCausalLM"}},
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
  std::ofstream file = CreateFile(folder / "config.json");
  file << config.dump(1) << '\n';
  CloseFile(file, folder / "config.json");
  const size_t hidden = spec.hidden_size;
  const size_t queries = spec.num_heads * spec.head_size;
  const size_t keys = spec.num_kv_heads * spec.head_size;
  const auto matrix = [](const std::string& name, size_t out, size_t in) {
    return RandomTensor{name + ".weight", {out, in}, 0, 1.0 / std::sqrt(static_cast<double>(in))};
  };
  const std::string layer = "layers.0.";
  std::vector<RandomTensor> tensors = {
      matrix("fc", hidden, 2 * hidden),
      matrix(layer + "self_attn.q_proj", queries, hidden),
      matrix(layer + "self_attn.k_proj", keys, hidden),
      matrix(layer + "self_attn.v_proj", keys, hidden),
      matrix(layer + "self_attn.o_proj", hidden, queries),
      {layer + "post_attention_layernorm.weight", {hidden}, 1, 0.1},
      matrix(layer + "mlp.gate_proj", spec.intermediate_size, hidden),
      matrix(layer + "mlp.up_proj", spec.intermediate_size, hidden),
      matrix(layer + "mlp.down_proj", hidden, spec.intermediate_size)};
  if (spec.has_bias) tensors.push_back({"fc.bias", {hidden}, 0, 0.1});
  if (spec.has_output) {
    tensors.push_back({"lm_head.weight", {spec.vocabulary_size, hidden}, 0, spec.output_scale});
  }
  WriteRandomTensors(folder / "model.safetensors", tensors, spec.dtype, spec.seed);
}

void WriteRandomHeads(const std::filesystem::path& folder, const RandomHeadsSpec& spec) {
  std::filesystem::create_directories(folder);
  nlohmann::ordered_json config = {
      {"architectures", {"MedusaModel"}}, {"model_type", "medusa"},
      {"hidden_size", spec.hidden_size},  {"vocab_size", spec.vocabulary_size},
      {"num_heads", spec.num_heads},      {"num_hidden_layers", spec.num_layers},
      {"medusa_fc_bias", spec.has_bias},  {"original_lm_head", spec.shares_output}};
  if (spec.truncated_vocabulary_size > 0) {
    config["truncated_vocab_size"] = spec.truncated_vocabulary_size;
  }
  std::ofstream file = CreateFile(folder / "config.json");
  file << config.dump(1) << '\n';
  CloseFile(file, folder / "config.json");
  WriteRandomTensors(folder / "model.safetensors", TensorsOf(spec), spec.dtype, spec.seed);
}

}  // namespace tandem::testing
