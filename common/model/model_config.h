// config.json and generation_config.json of a Hugging Face folder, as far as a Llama decoder needs
// them.
#ifndef TANDEM_COMMON_MODEL_MODEL_CONFIG_H_
#define TANDEM_COMMON_MODEL_MODEL_CONFIG_H_

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

// rope_scaling of type "llama3" (Llama 3.1 and later): low frequencies divided by `factor`, a ramp
// in between.
struct Llama3RopeScaling {
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  double original_max_position_embeddings = 8192;
};

struct ModelConfig {
  size_t vocabulary_size = 0;
  size_t hidden_size = 0;
  size_t intermediate_size = 0;
  size_t num_layers = 0;
  size_t num_heads = 0;
  size_t num_kv_heads = 0;
  size_t head_size = 0;
  size_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-5;
  double rope_theta = 10000.0;
  std::optional<Llama3RopeScaling> rope_scaling;
  bool attention_bias = false;
  bool mlp_bias = false;
  bool tied_embeddings = false;
  std::vector<int32_t> end_of_text_ids;  // generation_config.json's, else config.json's

  // Refuses what is unsupported or absurd, naming file and field. Bounded: small files, no deep
  // JSON.
  static absl::StatusOr<ModelConfig> Load(const std::filesystem::path& folder);
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_MODEL_CONFIG_H_
