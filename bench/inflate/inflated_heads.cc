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

absl::Status InflateEagle(const Inflation& inflation) {
  const ModelDescription& target = inflation.target;
  const InflatedShape& shape = inflation.shape;
  TANDEM_ASSIGN_OR_RETURN(const OpenedEagle eagle,
                          OpenedEagle::Open(inflation.from, target, inflation.weights));
  if (eagle.description.is_third || eagle.weights.has_own_embedding ||
      eagle.weights.has_own_output) {
    return InvalidArgument(inflation.from.string() +
                           ": only EAGLE-1 and EAGLE-2 with the target's embedding and output "
                           "product can be inflated");
  }
  InflatedShape layer = shape;
  layer.intermediate_size =
      eagle.description.layer.mlp.inner_size * shape.intermediate_size / target.mlp.inner_size;
  LayerPlan plan(eagle.description.layer, layer);
  std::vector<int64_t> joined = plan.hidden();  // embedding, and then feature
  for (const int64_t place : plan.hidden()) {
    joined.push_back(place < 0 ? place : place + static_cast<int64_t>(target.hidden_size));
  }
  plan.AddMatrix("fc.weight", &eagle.weights.fuse, plan.hidden(), joined);
  const std::vector<float> zeros(target.hidden_size);
  const std::vector<float>& bias = eagle.weights.fuse.bias;
  InflatedTensor& marked = plan.AddVector("fc.bias", bias.empty() ? &zeros : &bias, plan.hidden());
  if (inflation.is_wider()) marked.mark = {target.hidden_size, kGuessMark};
  plan.AddLayer("layers.0.", &eagle.weights.layer);
  TANDEM_ASSIGN_OR_RETURN(Json config, inflation.Config());
  config["vocab_size"] = shape.vocabulary_size;
  config["hidden_size"] = shape.hidden_size;
  config["intermediate_size"] = layer.intermediate_size;
  config["num_attention_heads"] = shape.num_heads;
  config["num_key_value_heads"] = shape.num_kv_heads;
  config["head_dim"] = shape.head_size;
  config["rms_norm_eps"] = eagle.description.layer.norm_eps *
                           static_cast<double>(target.hidden_size) /
                           static_cast<double>(shape.hidden_size);
  config["bias"] = true;
  return inflation.Write(config, plan.Take());
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
