#include "bench/inflate/inflated_heads.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/inflate/inflated_tensor.h"
#include "bench/inflate/layer_plan.h"
#include "common/model/checkpoint/checkpoint.h"
#include "common/model/heads/eagle/eagle_weights.h"
#include "common/model/heads/heads_kind.h"
#include "common/model/heads/heads_weights.h"
#include "common/model/heads/pass/look_ahead_table.h"
#include "common/model/model_weights.h"
#include "common/status.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

// The value of EAGLE's guesses in the dimension of the mark. With the target's weight of added
// tokens it gives them a logit of -16. Its square is too small for the norms to see.
constexpr float kGuessMark = 0x1p-10f;

// The model that the heads are for, and what comes out.
struct Inflation {
  std::filesystem::path from;
  std::filesystem::path to;
  InflatedShape shape;
  ModelDescription target = {};
  std::unique_ptr<Checkpoint> checkpoint = {};
  ModelWeights weights = {};

  bool is_wider() const { return shape.hidden_size > target.hidden_size; }
  absl::StatusOr<Json> Config() const {
    std::ifstream file(from / "config.json");
    Json json = Json::parse(file, nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded()) return InvalidArgument((from / "config.json").string() + ": no JSON");
    return json;
  }
  absl::Status Write(const Json& config, const std::vector<InflatedTensor>& tensors) const {
    for (const InflatedTensor& tensor : tensors) {
      if (tensor.source == nullptr || tensor.source_dtype != DType::kF16) continue;
      return InvalidArgument(
          absl::StrCat(from.string(), ": tensor \"", tensor.name, "\" is F16, want BF16 or F32"));
    }
    TANDEM_RETURN_IF_ERROR(WriteText(to / "config.json", config.dump(2) + "\n"));
    if (tensors.empty()) return absl::OkStatus();
    return WriteTensors(to / "model.safetensors", tensors, weights.embedding.dtype, {});
  }
};

absl::Status InflateMedusa(const Inflation& inflation) {
  const ModelDescription& target = inflation.target;
  TANDEM_ASSIGN_OR_RETURN(const HeadsDescription description,
                          HeadsDescription::Load(inflation.from, target));
  TANDEM_ASSIGN_OR_RETURN(const auto file, OpenHeads(inflation.from));
  TANDEM_ASSIGN_OR_RETURN(const HeadsWeights weights,
                          HeadsWeights::Load(*file, description, target, inflation.weights.output));
  LayerPlan plan(target, inflation.shape);
  const std::vector<int64_t>& hidden = plan.hidden();
  for (size_t head = 0; head < weights.heads.size(); ++head) {
    const HeadWeights& of_head = weights.heads[head];
    for (size_t layer = 0; layer < of_head.layers.size(); ++layer) {
      const std::string name = absl::StrCat("blocks.", head, ".layers.", layer);
      plan.AddMatrix(name + ".weight", &of_head.layers[layer], hidden, hidden);
      if (description.has_bias) {
        plan.AddVector(name + ".bias", &of_head.layers[layer].bias, hidden);
      }
    }
    if (weights.uses_target_output || (weights.shares_output && head > 0)) continue;
    const size_t tokens = description.vocabulary_size;
    plan.AddMatrix(absl::StrCat("lm_heads.", head, ".weight"), &of_head.output,
                   FirstPlaces(tokens, tokens), hidden);
  }
  std::vector<InflatedTensor> tensors = plan.Take();
  if (!weights.token_map.empty()) {
    tensors.push_back({.name = "token_map",
                       .shape = {weights.token_map.size()},
                       .ids = {weights.token_map.begin(), weights.token_map.end()}});
  }
  Json config = {
      {"model_type", "medusa"},
      {"hidden_size", inflation.shape.hidden_size},
      {"vocab_size", inflation.shape.vocabulary_size},
      {"truncated_vocab_size",
       weights.token_map.empty() ? inflation.shape.vocabulary_size : description.vocabulary_size},
      {"num_heads", description.num_heads},
      {"num_hidden_layers", description.num_layers},
      {"medusa_fc_bias", description.has_bias},
      {"original_lm_head", weights.shares_output}};
  return inflation.Write(config, tensors);
}

// Returns config.json of a layer of EAGLE in the shape of `layer`.
absl::StatusOr<Json> EagleConfig(const Inflation& inflation, const EagleDescription& eagle,
                                 const InflatedShape& layer) {
  TANDEM_ASSIGN_OR_RETURN(Json config, inflation.Config());
  config["vocab_size"] = layer.vocabulary_size;
  config["hidden_size"] = layer.hidden_size;
  config["intermediate_size"] = layer.intermediate_size;
  config["num_attention_heads"] = layer.num_heads;
  config["num_key_value_heads"] = layer.num_kv_heads;
  config["head_dim"] = layer.head_size;
  config["rms_norm_eps"] = eagle.layer.norm_eps * static_cast<double>(eagle.layer.hidden_size) /
                           static_cast<double>(layer.hidden_size);
  return config;
}

absl::Status InflateFirstEagle(const Inflation& inflation, const OpenedEagle& eagle,
                               const InflatedShape& layer) {
  if (eagle.weights.has_own_embedding || eagle.weights.has_own_output) {
    return InvalidArgument(inflation.from.string() +
                           ": EAGLE-1 and EAGLE-2 can be inflated only with the target's embedding "
                           "and output product");
  }
  const size_t hidden_size = inflation.target.hidden_size;
  LayerPlan plan(eagle.description.layer, layer);
  // The product takes an embedding and a feature.
  plan.AddMatrix("fc.weight", &eagle.weights.fuse, plan.hidden(), plan.Joined(2));
  const std::vector<float> zeros(hidden_size);
  const std::vector<float>& bias = eagle.weights.fuse.bias;
  InflatedTensor& marked = plan.AddVector("fc.bias", bias.empty() ? &zeros : &bias, plan.hidden());
  if (inflation.is_wider()) marked.mark = {hidden_size, kGuessMark};
  plan.AddLayer("layers.0.", &eagle.weights.layer);
  TANDEM_ASSIGN_OR_RETURN(Json config, EagleConfig(inflation, eagle.description, layer));
  config["bias"] = true;
  return inflation.Write(config, plan.Take());
}

// Adds the vocabulary of a layer of EAGLE-3, as far as it has one of its own.
void AddVocabulary(const Inflation& inflation, const EagleWeights& weights, LayerPlan* plan) {
  const size_t vocabulary = inflation.target.vocabulary_size;
  const std::vector<int64_t> all = FirstPlaces(vocabulary, inflation.shape.vocabulary_size);
  if (weights.has_own_embedding) {
    plan->AddMatrix("embed_tokens.weight", &weights.embedding, all, plan->hidden());
  }
  if (!weights.has_own_output) return;
  const size_t known = weights.token_map.size();
  InflatedTensor& output =
      plan->AddMatrix("lm_head.weight", &weights.output,
                      known > 0 ? FirstPlaces(known, known) : all, plan->hidden());
  if (inflation.is_wider()) output.added_mark = {inflation.target.hidden_size, kAddedToken};
}

// Adds the draft vocabulary of EAGLE-3: offsets of the target's ids, and a mask of the target's
// tokens.
void AddTokenMap(const Inflation& inflation, const std::vector<int32_t>& token_map,
                 std::vector<InflatedTensor>* tensors) {
  std::vector<int64_t> offsets;
  std::vector<uint8_t> mask(inflation.shape.vocabulary_size);
  for (size_t i = 0; i < token_map.size(); ++i) {
    offsets.push_back(token_map[i] - static_cast<int64_t>(i));
    mask[static_cast<size_t>(token_map[i])] = 1;
  }
  tensors->push_back({.name = "d2t", .shape = {offsets.size()}, .ids = std::move(offsets)});
  tensors->push_back({.name = "t2d", .shape = {mask.size()}, .mask = std::move(mask)});
}

absl::StatusOr<Json> ThirdEagleConfig(const Inflation& inflation, const OpenedEagle& eagle,
                                      const InflatedShape& layer) {
  constexpr const char* kLayerIds = "eagle_aux_hidden_state_layer_ids";
  TANDEM_ASSIGN_OR_RETURN(Json config, EagleConfig(inflation, eagle.description, layer));
  if (config.contains("target_hidden_size")) config["target_hidden_size"] = layer.hidden_size;
  const size_t known = eagle.weights.token_map.size();
  config["draft_vocab_size"] = known > 0 ? known : layer.vocabulary_size;
  // These are layers that the states enter, even if the small layer's own list, which begins with
  // 1 then, has those that they leave. So this list never begins with 1.
  std::vector<size_t> layers;
  for (const RowFeatures::Part& part : eagle.description.features.parts) {
    layers.push_back(part.layer);
  }
  const bool is_nested =
      config.contains("eagle_config") && config["eagle_config"].contains(kLayerIds);
  (is_nested ? config["eagle_config"] : config)[kLayerIds] = layers;
  return config;
}

absl::Status InflateThirdEagle(const Inflation& inflation, const OpenedEagle& eagle,
                               const InflatedShape& layer) {
  const EagleWeights& weights = eagle.weights;
  const std::string& prefix = eagle.description.prefix;
  const size_t hidden_size = inflation.target.hidden_size;
  LayerPlan plan(eagle.description.layer, layer);
  InflatedTensor& fuse = plan.AddMatrix("fc.weight", &weights.fuse, plan.hidden(),
                                        plan.Joined(eagle.description.features.parts.size()));
  // Every state of the target has the mark. All added dimensions take that of the first state, and
  // only the norm of the guess reads the first of them.
  if (inflation.is_wider()) fuse.added_mark = {hidden_size, 1};
  if (!weights.fuse.bias.empty()) plan.AddVector("fc.bias", &weights.fuse.bias, plan.hidden());
  plan.AddLayer(prefix, &weights.layer, /*inputs=*/2);
  plan.AddNorm(prefix + "hidden_norm.weight", &weights.state_norm);
  InflatedTensor& norm = plan.AddNorm("norm.weight", &weights.output_norm);
  if (inflation.is_wider()) norm.mark = {hidden_size, kMarkWeight};
  AddVocabulary(inflation, weights, &plan);
  std::vector<InflatedTensor> tensors = plan.Take();
  if (!weights.token_map.empty()) AddTokenMap(inflation, weights.token_map, &tensors);
  TANDEM_ASSIGN_OR_RETURN(const Json config, ThirdEagleConfig(inflation, eagle, layer));
  return inflation.Write(config, tensors);
}

absl::Status InflateEagle(const Inflation& inflation) {
  const ModelDescription& target = inflation.target;
  TANDEM_ASSIGN_OR_RETURN(const OpenedEagle eagle,
                          OpenedEagle::Open(inflation.from, target, inflation.weights));
  InflatedShape layer = inflation.shape;
  layer.intermediate_size = eagle.description.layer.mlp.inner_size *
                            inflation.shape.intermediate_size / target.mlp.inner_size;
  return eagle.description.is_third ? InflateThirdEagle(inflation, eagle, layer)
                                    : InflateFirstEagle(inflation, eagle, layer);
}

absl::Status InflateLayerSkip(const Inflation& inflation) {
  TANDEM_ASSIGN_OR_RETURN(Json config, inflation.Config());
  for (size_t layer = inflation.target.num_layers; layer < inflation.shape.num_layers; ++layer) {
    if ((layer - inflation.target.num_layers) % 3 == 1) config["skipped_layers"].push_back(layer);
  }
  config["num_hidden_layers"] = inflation.shape.num_layers;
  return inflation.Write(config, {});
}

absl::Status InflatePass(const Inflation& inflation) {
  TANDEM_ASSIGN_OR_RETURN(const LookAheadTable table,
                          LookAheadTable::Open(inflation.from, inflation.target));
  LayerPlan plan(inflation.target, inflation.shape);
  InflatedTensor& rows =
      plan.AddMatrix("lookahead.weight", &table.embeddings,
                     FirstPlaces(table.num_rows(), table.num_rows()), plan.hidden());
  if (inflation.is_wider()) rows.mark = {inflation.target.hidden_size, kMark};
  TANDEM_ASSIGN_OR_RETURN(Json config, inflation.Config());
  config["hidden_size"] = inflation.shape.hidden_size;
  return inflation.Write(config, plan.Take());
}

}  // namespace

absl::Status InflateHeads(const std::filesystem::path& from, const std::filesystem::path& to,
                          const std::filesystem::path& target, const InflatedShape& shape) {
  Inflation inflation = {.from = from, .to = to, .shape = shape};
  TANDEM_ASSIGN_OR_RETURN(inflation.target, ModelDescription::Load(target));
  TANDEM_RETURN_IF_ERROR(CheckInflation(inflation.target, shape));
  TANDEM_ASSIGN_OR_RETURN(inflation.checkpoint, Checkpoint::Open(target));
  TANDEM_ASSIGN_OR_RETURN(inflation.weights,
                          ModelWeights::Load(*inflation.checkpoint, inflation.target));
  std::error_code error;
  std::filesystem::create_directories(to, error);
  if (error) return CannotWrite(to);
  if (std::filesystem::equivalent(from, to, error)) {
    return InvalidArgument(to.string() + ": this is the small heads' own folder");
  }
  TANDEM_ASSIGN_OR_RETURN(const HeadsKind kind, KindOfHeads(from));
  switch (kind) {
    case HeadsKind::kMedusa:
      return InflateMedusa(inflation);
    case HeadsKind::kEagle:
      return InflateEagle(inflation);
    case HeadsKind::kLayerSkip:
      return InflateLayerSkip(inflation);
    case HeadsKind::kPass:
      return InflatePass(inflation);
  }
  return Internal("unknown heads");
}

}  // namespace tandem
