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
