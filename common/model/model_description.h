// The computation of a decoder, as config.json of a Hugging Face folder states it. The walk over
// the layers (decoder.h) and the backends read this description and know no architecture by name.
#ifndef TANDEM_COMMON_MODEL_MODEL_DESCRIPTION_H_
#define TANDEM_COMMON_MODEL_MODEL_DESCRIPTION_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

// rope_scaling of type "llama3" (Llama 3.1 and later). Low frequencies are divided by `factor`,
// high frequencies are kept, and a ramp lies in between.
struct Llama3RopeScaling {
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  double original_max_position_embeddings = 8192;
};

// The angles by which queries and keys turn with their positions.
struct RopeDescription {
  double theta = 10000.0;
  std::optional<Llama3RopeScaling> scaling;
};

// Grouped-query attention: query head h uses KV head h / (num_heads / num_kv_heads). Scores are
// divided by sqrt(head_size).
struct AttentionDescription {
  size_t num_heads = 0;
  size_t num_kv_heads = 0;  // divides num_heads
  size_t head_size = 0;     // even
  bool qkv_bias = false;    // the products that give queries, keys and values add biases
  bool output_bias = false;
  bool has_head_norms = false;  // each head of queries and keys is normalized before it is turned
  RopeDescription rope;

  // Number of floats in one row.
  size_t query_floats() const { return num_heads * head_size; }
  size_t kv_floats() const { return num_kv_heads * head_size; }  // keys alone, or values alone
  size_t qkv_floats() const { return query_floats() + 2 * kv_floats(); }
};

// down(silu(gate(x)) * up(x))
struct MlpDescription {
  size_t inner_size = 0;
  bool has_bias = false;  // all three products add biases
};

// A decoder of equal layers. Each layer adds two branches to the residual stream: first attention,
// then the MLP. A root-mean-square norm precedes each branch and the output product.
struct ModelDescription {
  size_t vocabulary_size = 0;
  size_t hidden_size = 0;
  size_t num_layers = 0;
  AttentionDescription attention;  // the same in every layer
  MlpDescription mlp;              // the same in every layer
  double norm_eps = 1e-5;          // the same in every norm
  bool tied_embeddings = false;    // the output product uses the embedding's matrix
  size_t max_position_embeddings = 0;
  std::vector<int32_t> end_of_text_ids;  // from generation_config.json, or else from config.json

  // Reads config.json and generation_config.json of `folder`. Large files and deeply nested JSON
  // are refused. INVALID_ARGUMENT names the file and the field that is unsupported or absurd.
  // NOT_FOUND: there is no config.json. `llama_names` are architectures that stand for
  // LlamaForCausalLM.
  static absl::StatusOr<ModelDescription> Load(const std::filesystem::path& folder,
                                               std::span<const std::string_view> llama_names = {});
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_MODEL_DESCRIPTION_H_
