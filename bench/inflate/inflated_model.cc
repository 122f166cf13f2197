#include "bench/inflate/inflated_model.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/inflate/inflated_tensor.h"
#include "bench/inflate/layer_plan.h"
#include "common/model/checkpoint/checkpoint.h"
#include "common/model/model_weights.h"
#include "common/status.h"
#include "kernels/dtype.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

// Collects the tensors of an inflated model.
std::vector<InflatedTensor> PlanModel(const ModelDescription& config, const InflatedShape& shape,
                                      const ModelWeights& weights) {
  LayerPlan plan(config, shape);
  const bool is_wider = shape.hidden_size > config.hidden_size;  // otherwise no tokens are added
  const auto add_vocabulary = [&](const std::string& name, const Linear& linear, float mark) {
    InflatedTensor& tensor = plan.AddMatrix(
        name, &linear, FirstPlaces(config.vocabulary_size, shape.vocabulary_size), plan.hidden());
    if (!is_wider) return;
    if (mark != 0) tensor.mark = {config.hidden_size, mark};
    tensor.added_mark = {config.hidden_size, kAddedToken};
  };
  add_vocabulary("model.embed_tokens.weight", weights.embedding, kMark);
  for (size_t l = 0; l < shape.num_layers; ++l) {
    plan.AddLayer(absl::StrCat("model.layers.", l, "."),
                  l < weights.layers.size() ? &weights.layers[l] : nullptr);
  }
  InflatedTensor& norm = plan.AddNorm("model.norm.weight", &weights.final_norm);
  if (is_wider) norm.mark = {config.hidden_size, kMarkWeight};
  if (!config.tied_embeddings) add_vocabulary("lm_head.weight", weights.output, 0);
  return plan.Take();
}

absl::StatusOr<Json> ReadJson(const std::filesystem::path& path) {
  std::ifstream file(path);
  Json json = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return InvalidArgument(path.string() + ": is not JSON");
  return json;
}

absl::Status WriteConfig(const std::filesystem::path& from, const std::filesystem::path& to,
                         const ModelDescription& config, const InflatedShape& shape) {
  TANDEM_ASSIGN_OR_RETURN(Json json, ReadJson(from / "config.json"));
  json["vocab_size"] = shape.vocabulary_size;
  json["hidden_size"] = shape.hidden_size;
  json["intermediate_size"] = shape.intermediate_size;
  json["num_hidden_layers"] = shape.num_layers;
  json["num_attention_heads"] = shape.num_heads;
  json["num_key_value_heads"] = shape.num_kv_heads;
  json["head_dim"] = shape.head_size;
  json["rms_norm_eps"] = config.norm_eps * static_cast<double>(config.hidden_size) /
                         static_cast<double>(shape.hidden_size);
  return WriteText(to / "config.json", json.dump(2) + "\n");
}

// Makes entries of the vocabulary that no merge leads to.
absl::Status WriteTokenizer(const std::filesystem::path& from, const std::filesystem::path& to,
                            size_t size, size_t large_size) {
  TANDEM_ASSIGN_OR_RETURN(const Json json, ReadJson(from / "tokenizer.json"));
  std::string text = json.dump();
  std::string entries;
  for (size_t id = size; id < large_size; ++id) {
    absl::StrAppend(&entries, ",\"Ġunused", id, "\":", id);
  }
  // The entries are added to the text, at the end of the vocabulary. An ordered JSON object would
  // search linearly for duplicates.
  const std::string vocabulary = json["model"]["vocab"].dump();
  const size_t at = text.find(vocabulary);
  if (at == std::string::npos || vocabulary.size() <= 2) {
    return InvalidArgument((from / "tokenizer.json").string() + ": model.vocab is not an object");
  }
  text.insert(at + vocabulary.size() - 1, entries);
  return WriteText(to / "tokenizer.json", text);
}

bool IsPowerOfFour(size_t large, size_t small) {
  size_t ratio = large / small;
  if (ratio * small != large) return false;
  while (ratio % 4 == 0) ratio /= 4;
  return ratio == 1;
}

}  // namespace

InflatedShape Llama1B() {
  return {.vocabulary_size = 128256,
          .hidden_size = 2048,
          .intermediate_size = 8192,
          .num_layers = 16,
          .num_heads = 32,
          .num_kv_heads = 8,
          .head_size = 64};
}

InflatedShape Llama3B() {
  return {.vocabulary_size = 128256,
          .hidden_size = 3072,
          .intermediate_size = 8192,
          .num_layers = 28,
          .num_heads = 24,
          .num_kv_heads = 8,
          .head_size = 128};
}

bool IsExact(const ModelDescription& config, const InflatedShape& shape) {
  return IsPowerOfFour(shape.hidden_size, config.hidden_size) &&
         IsPowerOfFour(shape.head_size, config.attention.head_size);
}

absl::Status CheckInflation(const ModelDescription& config, const InflatedShape& shape) {
  const std::tuple<const char*, size_t, size_t> sizes[] = {
      {"vocab_size", config.vocabulary_size, shape.vocabulary_size},
      {"hidden_size", config.hidden_size, shape.hidden_size},
      {"intermediate_size", config.mlp.inner_size, shape.intermediate_size},
      {"num_hidden_layers", config.num_layers, shape.num_layers},
      {"num_key_value_heads", config.attention.num_kv_heads, shape.num_kv_heads},
      {"head_dim", config.attention.head_size, shape.head_size}};
  for (const auto& [name, small, large] : sizes) {
    if (large >= small) continue;
    return InvalidArgument(absl::StrCat(name, ": the model has ", small, ", the shape ", large));
  }
  if (shape.num_heads % shape.num_kv_heads != 0 ||
      shape.num_heads / shape.num_kv_heads <
          config.attention.num_heads / config.attention.num_kv_heads) {
    return InvalidArgument(absl::StrCat("num_attention_heads: the model has ",
                                        config.attention.num_heads, " for ",
                                        config.attention.num_kv_heads, " of keys, the shape ",
                                        shape.num_heads, " for ", shape.num_kv_heads));
  }
  if (shape.head_size % config.attention.head_size != 0) {
    return InvalidArgument(absl::StrCat("head_dim: ", shape.head_size, " is not a multiple of the ",
                                        "model's ", config.attention.head_size));
  }
  if (config.attention.has_head_norms) {
    return InvalidArgument("q_norm: a model that normalizes its heads cannot be inflated");
  }
  if (config.attention.rope.scaling.has_value() && shape.head_size != config.attention.head_size) {
    return InvalidArgument("head_dim: cannot change if rope_scaling is set");
  }
  if (shape.vocabulary_size > config.vocabulary_size && shape.hidden_size == config.hidden_size) {
    return InvalidArgument("vocab_size: tokens can be added only if hidden_size grows too");
  }
  return absl::OkStatus();
}

absl::Status InflateModel(const std::filesystem::path& from, const std::filesystem::path& to,
                          const InflatedShape& shape,
                          const std::function<void(uint64_t done, uint64_t all)>& on_progress) {
  TANDEM_ASSIGN_OR_RETURN(const ModelDescription config, ModelDescription::Load(from));
  TANDEM_RETURN_IF_ERROR(CheckInflation(config, shape));
  TANDEM_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(from));
  TANDEM_ASSIGN_OR_RETURN(const ModelWeights weights, ModelWeights::Load(*checkpoint, config));
  const DType dtype = weights.embedding.dtype;
  if (dtype == DType::kF16) {
    return InvalidArgument((from / "model.safetensors").string() +
                           ": weights are F16, want BF16 or F32");
  }
  std::error_code error;
  std::filesystem::create_directories(to, error);
  if (error) return CannotWrite(to);
  if (std::filesystem::equivalent(from, to, error)) {
    return InvalidArgument(to.string() + ": this is the small model's own folder");
  }
  TANDEM_RETURN_IF_ERROR(WriteConfig(from, to, config, shape));
  TANDEM_RETURN_IF_ERROR(WriteTokenizer(from, to, config.vocabulary_size, shape.vocabulary_size));
  for (const char* name : {"generation_config.json", "tokenizer_config.json"}) {
    if (!std::filesystem::exists(from / name)) continue;
    std::filesystem::copy_file(from / name, to / name,
                               std::filesystem::copy_options::overwrite_existing, error);
    if (error) return CannotWrite(to / name);
  }
  return WriteTensors(to / "model.safetensors", PlanModel(config, shape, weights), dtype,
                      on_progress);
}

}  // namespace tandem
