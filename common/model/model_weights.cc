#include "common/model/model_weights.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "common/status.h"
#include "kernels/embedding.h"

namespace tandem {
namespace {

std::optional<DType> WeightType(const std::string& name) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (name == Name(dtype)) return dtype;
  }
  return std::nullopt;
}

std::string ShapeText(std::span<const uint64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

// A size, and its name in config.json.
struct Size {
  size_t value;
  const char* name;
};

class Loader {
 public:
  explicit Loader(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  absl::StatusOr<std::vector<float>> Vector(const std::string& name, const Size& size) const {
    TANDEM_ASSIGN_OR_RETURN(const Tensor* tensor, Checked(name, {&size, 1}));
    std::vector<float> values(size.value);
    const int32_t row = 0;
    Embed({.table = tensor->data,
           .dtype = *WeightType(tensor->dtype),
           .size = size.value,
           .ids = &row,
           .rows = 1,
           .out = values.data(),
           .out_stride = size.value});
    return values;
  }

  absl::StatusOr<Linear> Matrix(const std::string& name, const Size& out, const Size& in,
                                bool has_bias) const {
    const Size sizes[] = {out, in};
    TANDEM_ASSIGN_OR_RETURN(const Tensor* tensor, Checked(name + ".weight", sizes));
    Linear linear;
    linear.weight = tensor->data;
    linear.dtype = *WeightType(tensor->dtype);
    linear.out_features = out.value;
    linear.in_features = in.value;
    if (has_bias) {
      TANDEM_ASSIGN_OR_RETURN(linear.bias, Vector(name + ".bias", out));
    }
    return linear;
  }

 private:
  absl::StatusOr<const Tensor*> Checked(const std::string& name,
                                        std::span<const Size> sizes) const {
    TANDEM_ASSIGN_OR_RETURN(const Tensor* tensor, checkpoint_.Get(name));
    const std::string where = checkpoint_.FileOf(name) + ": tensor \"" + name + "\"";
    if (!WeightType(tensor->dtype)) {
      return InvalidArgument(where + " is " + tensor->dtype + " (supported: F32, BF16, F16)");
    }
    std::vector<uint64_t> want;
    std::string names;
    for (const Size& size : sizes) {
      want.push_back(size.value);
      names += (names.empty() ? "" : ", ") + std::string(size.name);
    }
    if (tensor->shape != want) {
      return InvalidArgument(where + " has shape " + ShapeText(tensor->shape) +
                             ", config.json wants " + ShapeText(want) + " (" + names + ")");
    }
    return tensor;
  }

  const Checkpoint& checkpoint_;
};

// The sizes of a model, and their names in config.json.
struct Sizes {
  explicit Sizes(const ModelDescription& model)
      : vocabulary{model.vocabulary_size, "vocab_size"},
        hidden{model.hidden_size, "hidden_size"},
        inner{model.mlp.inner_size, "intermediate_size"},
        head{model.attention.head_size, "head_dim"},
        heads{model.attention.query_floats(), "num_attention_heads * head_dim"},
        kv_heads{model.attention.kv_floats(), "num_key_value_heads * head_dim"} {}

  Size vocabulary, hidden, inner, head, heads, kv_heads;
};

absl::StatusOr<LayerWeights> LoadLayer(const Loader& loader, const ModelDescription& model,
                                       const Sizes& sizes, size_t index) {
  const std::string prefix = "model.layers." + std::to_string(index) + ".";
  const std::string attention = prefix + "self_attn.";
  const std::string mlp = prefix + "mlp.";
  const bool qkv_bias = model.attention.qkv_bias;
  const bool mlp_bias = model.mlp.has_bias;
  LayerWeights layer;
  TANDEM_ASSIGN_OR_RETURN(layer.attention_norm,
                          loader.Vector(prefix + "input_layernorm.weight", sizes.hidden));
  TANDEM_ASSIGN_OR_RETURN(layer.query,
                          loader.Matrix(attention + "q_proj", sizes.heads, sizes.hidden, qkv_bias));
  TANDEM_ASSIGN_OR_RETURN(
      layer.key, loader.Matrix(attention + "k_proj", sizes.kv_heads, sizes.hidden, qkv_bias));
  TANDEM_ASSIGN_OR_RETURN(
      layer.value, loader.Matrix(attention + "v_proj", sizes.kv_heads, sizes.hidden, qkv_bias));
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

}  // namespace

absl::StatusOr<ModelWeights> ModelWeights::Load(const Checkpoint& checkpoint,
                                                const ModelDescription& model) {
  const Loader loader(checkpoint);
  const Sizes sizes(model);
  ModelWeights weights;
  TANDEM_ASSIGN_OR_RETURN(weights.embedding, loader.Matrix("model.embed_tokens", sizes.vocabulary,
                                                           sizes.hidden, false));
  for (size_t i = 0; i < model.num_layers; ++i) {
    TANDEM_ASSIGN_OR_RETURN(LayerWeights layer, LoadLayer(loader, model, sizes, i));
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
