#include "common/model/heads/eagle_weights.h"

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>

#include "common/model/heads/heads_weights.h"
#include "common/model/tensor_loader.h"
#include "common/status.h"

namespace tandem {
namespace {

absl::Status CheckSame(const std::filesystem::path& folder, const std::string& field, size_t size,
                       size_t target) {
  if (size == target) return absl::OkStatus();
  return InvalidArgument((folder / "config.json").string() + ": " + field + " is " +
                         std::to_string(size) + ", the target has " + std::to_string(target) +
                         " (these are heads of another model)");
}

// A tensor that nobody reads would change what the layer should compute.
absl::Status CheckNames(const Checkpoint& checkpoint) {
  static const std::set<std::string, std::less<>> kNames = {
      "fc.weight",
      "fc.bias",
      "embed_tokens.weight",
      "lm_head.weight",
      "layers.0.self_attn.q_proj.weight",
      "layers.0.self_attn.k_proj.weight",
      "layers.0.self_attn.v_proj.weight",
      "layers.0.self_attn.o_proj.weight",
      "layers.0.self_attn.q_proj.bias",
      "layers.0.self_attn.k_proj.bias",
      "layers.0.self_attn.v_proj.bias",
      "layers.0.self_attn.rotary_emb.inv_freq",
      "layers.0.post_attention_layernorm.weight",
      "layers.0.mlp.gate_proj.weight",
      "layers.0.mlp.up_proj.weight",
      "layers.0.mlp.down_proj.weight"};
  for (const std::string& name : checkpoint.names()) {
    if (kNames.contains(name)) continue;
    return InvalidArgument(
        checkpoint.FileOf(name) + ": tensor \"" + name +
        "\" is not one of EAGLE-1 or EAGLE-2 (other versions are not supported)");
  }
  return absl::OkStatus();
}

uint64_t BytesOf(const Linear& linear) {
  return uint64_t{linear.out_features} * linear.in_features * SizeOf(linear.dtype);
}

uint64_t BytesOf(const LayerWeights& layer) {
  uint64_t bytes = 0;
  for (const Linear* linear : {&layer.query, &layer.key, &layer.value, &layer.attention_output,
                               &layer.gate, &layer.up, &layer.down}) {
    bytes += BytesOf(*linear);
  }
  return bytes;
}

}  // namespace

absl::StatusOr<ModelDescription> EagleWeights::Describe(const std::filesystem::path& folder,
                                                        const ModelDescription& target) {
  TANDEM_ASSIGN_OR_RETURN(ModelDescription eagle, ModelDescription::Load(folder));
  const auto check = [&](const std::string& field, size_t size, size_t of_target) {
    return CheckSame(folder, field, size, of_target);
  };
  TANDEM_RETURN_IF_ERROR(check("hidden_size", eagle.hidden_size, target.hidden_size));
  TANDEM_RETURN_IF_ERROR(check("vocab_size", eagle.vocabulary_size, target.vocabulary_size));
  TANDEM_RETURN_IF_ERROR(
      check("num_key_value_heads", eagle.attention.num_kv_heads, target.attention.num_kv_heads));
  TANDEM_RETURN_IF_ERROR(check("head_dim", eagle.attention.head_size, target.attention.head_size));
  if (eagle.num_layers != 1) {
    return InvalidArgument((folder / "config.json").string() + ": num_hidden_layers is " +
                           std::to_string(eagle.num_layers) + ", want 1 (EAGLE has one layer)");
  }
  eagle.max_position_embeddings = target.max_position_embeddings;
  // The layer is the authors' own, whatever the target is. Only its queries, keys and values may
  // have biases.
  eagle.attention.qkv_bias = false;
  eagle.attention.output_bias = false;
  eagle.attention.has_head_norms = false;
  eagle.mlp.has_bias = false;
  return eagle;
}

absl::StatusOr<EagleWeights> EagleWeights::Load(const Checkpoint& checkpoint,
                                                const ModelDescription& eagle,
                                                const ModelWeights& target) {
  TANDEM_RETURN_IF_ERROR(CheckNames(checkpoint));
  const TensorLoader loader(checkpoint);
  const NamedSize hidden = {eagle.hidden_size, "hidden_size"};
  const NamedSize both = {2 * eagle.hidden_size, "2 * hidden_size"};
  const NamedSize vocabulary = {eagle.vocabulary_size, "vocab_size"};
  EagleWeights weights;
  TANDEM_ASSIGN_OR_RETURN(weights.fuse,
                          loader.Matrix("fc", hidden, both, checkpoint.Has("fc.bias")));
  TANDEM_ASSIGN_OR_RETURN(weights.layer, LoadLayerWeights(loader, eagle, "layers.0.", false));
  weights.embedding = target.embedding;
  if (checkpoint.Has("embed_tokens.weight")) {
    TANDEM_ASSIGN_OR_RETURN(weights.embedding,
                            loader.Matrix("embed_tokens", vocabulary, hidden, false));
  }
  weights.output = target.output;
  if (checkpoint.Has("lm_head.weight")) {
    TANDEM_ASSIGN_OR_RETURN(weights.output, loader.Matrix("lm_head", vocabulary, hidden, false));
  }
  return weights;
}

double EagleWeights::StepCost(const ModelWeights& target) const {
  uint64_t pass = BytesOf(target.output);
  for (const LayerWeights& of_target : target.layers) pass += BytesOf(of_target);
  const uint64_t step = BytesOf(fuse) + BytesOf(layer) + BytesOf(output);
  return static_cast<double>(step) / static_cast<double>(pass);
}

absl::StatusOr<OpenedEagle> OpenedEagle::Open(const std::filesystem::path& folder,
                                              const ModelDescription& target,
                                              const ModelWeights& target_weights) {
  OpenedEagle opened;
  TANDEM_ASSIGN_OR_RETURN(opened.description, EagleWeights::Describe(folder, target));
  TANDEM_ASSIGN_OR_RETURN(opened.checkpoint, OpenHeads(folder));
  opened.description.attention.qkv_bias = opened.checkpoint->Has("layers.0.self_attn.q_proj.bias");
  TANDEM_ASSIGN_OR_RETURN(
      opened.weights, EagleWeights::Load(*opened.checkpoint, opened.description, target_weights));
  opened.checkpoint->WillNeed();
  return opened;
}

}  // namespace tandem
