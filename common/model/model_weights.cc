#include "common/model/model_weights.h"

#include <string>
#include <utility>

#include "common/model/tensor_loader.h"
#include "common/status.h"

namespace tandem {
namespace {

// The sizes of a model, and their names in config.json.
struct Sizes {
  explicit Sizes(const ModelDescription& model)
      : vocabulary{model.vocabulary_size, "vocab_size"},
        hidden{model.hidden_size, "hidden_size"},
        inner{model.mlp.inner_size, "intermediate_size"},
        head{model.attention.head_size, "head_dim"},
        heads{model.attention.query_floats(), "num_attention_heads * head_dim"},
        kv_heads{model.attention.kv_floats(), "num_key_value_heads * head_dim"} {}

  NamedSize vocabulary, hidden, inner, head, heads, kv_heads;
};

}  // namespace

uint64_t LayerWeights::bytes() const {
  uint64_t sum = 0;
  for (const Linear* linear : {&query, &key, &value, &attention_output, &gate, &up, &down}) {
    sum += linear->bytes();
  }
  return sum;
}

uint64_t ModelWeights::pass_bytes() const {
  uint64_t sum = output.bytes();
  for (const LayerWeights& layer : layers) sum += layer.bytes();
  return sum;
}

absl::StatusOr<LayerWeights> LoadLayerWeights(const TensorLoader& loader,
                                              const ModelDescription& model,
                                              const std::string& prefix, bool has_attention_norm,
                                              size_t attention_inputs) {
  const Sizes sizes(model);
  const NamedSize input = attention_inputs == 1 ? sizes.hidden
                                                : NamedSize{attention_inputs * sizes.hidden.value,
                                                            "inputs * hidden_size"};
  const std::string attention = prefix + "self_attn.";
  const std::string mlp = prefix + "mlp.";
  const bool qkv_bias = model.attention.qkv_bias;
  const bool mlp_bias = model.mlp.has_bias;
  LayerWeights layer;
  if (has_attention_norm) {
    TANDEM_ASSIGN_OR_RETURN(layer.attention_norm,
                            loader.Vector(prefix + "input_layernorm.weight", sizes.hidden));
  }
  TANDEM_ASSIGN_OR_RETURN(layer.query,
                          loader.Matrix(attention + "q_proj", sizes.heads, input, qkv_bias));
  TANDEM_ASSIGN_OR_RETURN(layer.key,
                          loader.Matrix(attention + "k_proj", sizes.kv_heads, input, qkv_bias));
  TANDEM_ASSIGN_OR_RETURN(layer.value,
                          loader.Matrix(attention + "v_proj", sizes.kv_heads, input, qkv_bias));
  if (model.attention.has_head_norms) {
    TANDEM_ASSIGN_OR_RETURN(layer.query_norm,
                            loader.Vector(attention + "q_norm.weight", sizes.head));
    TANDEM_ASSIGN_OR_RETURN(layer.key_norm, loader.Vector(attention + "k_norm.weight", sizes.head));
  }
  TANDEM_ASSIGN_OR_RETURN(
      layer.attention_output,
      loader.Matrix(attention + "o_proj", sizes.hidden, sizes.heads, model.attention.output_bias));
  TANDEM_ASSIGN_OR_RETURN(layer.mlp_norm,
                          loader.Vector(prefix + "post_attention_layernorm.weight", sizes.hidden));
  TANDEM_ASSIGN_OR_RETURN(layer.gate,
                          loader.Matrix(mlp + "gate_proj", sizes.inner, sizes.hidden, mlp_bias));
  TANDEM_ASSIGN_OR_RETURN(layer.up,
                          loader.Matrix(mlp + "up_proj", sizes.inner, sizes.hidden, mlp_bias));
  TANDEM_ASSIGN_OR_RETURN(layer.down,
                          loader.Matrix(mlp + "down_proj", sizes.hidden, sizes.inner, mlp_bias));
  return layer;
}

absl::StatusOr<ModelWeights> ModelWeights::Load(const Checkpoint& checkpoint,
                                                const ModelDescription& model) {
  const TensorLoader loader(checkpoint);
  const Sizes sizes(model);
  ModelWeights weights;
  TANDEM_ASSIGN_OR_RETURN(weights.embedding, loader.Matrix("model.embed_tokens", sizes.vocabulary,
                                                           sizes.hidden, false));
  for (size_t i = 0; i < model.num_layers; ++i) {
    const std::string prefix = "model.layers." + std::to_string(i) + ".";
    TANDEM_ASSIGN_OR_RETURN(LayerWeights layer, LoadLayerWeights(loader, model, prefix, true));
    weights.layers.push_back(std::move(layer));
  }
  TANDEM_ASSIGN_OR_RETURN(weights.final_norm, loader.Vector("model.norm.weight", sizes.hidden));
  if (model.tied_embeddings) {
    weights.output = weights.embedding;
  } else {
    TANDEM_ASSIGN_OR_RETURN(weights.output,
                            loader.Matrix("lm_head", sizes.vocabulary, sizes.hidden, false));
  }
  return weights;
}

}  // namespace tandem
