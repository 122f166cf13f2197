#include "common/model/llama_weights.h"

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

// A size that config.json gives, and how it says so.
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

}  // namespace

absl::StatusOr<LlamaWeights> LlamaWeights::Load(const Checkpoint& checkpoint,
                                                const ModelConfig& config) {
  const Size vocabulary = {config.vocabulary_size, "vocab_size"};
  const Size hidden = {config.hidden_size, "hidden_size"};
  const Size inner = {config.intermediate_size, "intermediate_size"};
  const Size heads = {config.num_heads * config.head_size, "num_attention_heads * head_dim"};
  const Size kv_heads = {config.num_kv_heads * config.head_size, "num_key_value_heads * head_dim"};

  const Loader loader(checkpoint);
  LlamaWeights weights;
  TANDEM_ASSIGN_OR_RETURN(weights.embedding,
                          loader.Matrix("model.embed_tokens", vocabulary, hidden, false));
  for (size_t i = 0; i < config.num_layers; ++i) {
    const std::string prefix = "model.layers." + std::to_string(i) + ".";
    const std::string attention = prefix + "self_attn.";
    const std::string mlp = prefix + "mlp.";
    const bool attention_bias = config.attention_bias;
    LlamaLayerWeights layer;
    TANDEM_ASSIGN_OR_RETURN(layer.attention_norm,
                            loader.Vector(prefix + "input_layernorm.weight", hidden));
    TANDEM_ASSIGN_OR_RETURN(layer.query,
                            loader.Matrix(attention + "q_proj", heads, hidden, attention_bias));
    TANDEM_ASSIGN_OR_RETURN(layer.key,
                            loader.Matrix(attention + "k_proj", kv_heads, hidden, attention_bias));
    TANDEM_ASSIGN_OR_RETURN(layer.value,
                            loader.Matrix(attention + "v_proj", kv_heads, hidden, attention_bias));
    TANDEM_ASSIGN_OR_RETURN(layer.attention_output,
                            loader.Matrix(attention + "o_proj", hidden, heads, attention_bias));
    TANDEM_ASSIGN_OR_RETURN(layer.mlp_norm,
                            loader.Vector(prefix + "post_attention_layernorm.weight", hidden));
    TANDEM_ASSIGN_OR_RETURN(layer.gate,
                            loader.Matrix(mlp + "gate_proj", inner, hidden, config.mlp_bias));
    TANDEM_ASSIGN_OR_RETURN(layer.up,
                            loader.Matrix(mlp + "up_proj", inner, hidden, config.mlp_bias));
    TANDEM_ASSIGN_OR_RETURN(layer.down,
                            loader.Matrix(mlp + "down_proj", hidden, inner, config.mlp_bias));
    weights.layers.push_back(std::move(layer));
  }
  TANDEM_ASSIGN_OR_RETURN(weights.final_norm, loader.Vector("model.norm.weight", hidden));
  if (config.tied_embeddings) {
    weights.output = weights.embedding;
  } else {
    TANDEM_ASSIGN_OR_RETURN(weights.output, loader.Matrix("lm_head", vocabulary, hidden, false));
  }
  return weights;
}

}  // namespace tandem
