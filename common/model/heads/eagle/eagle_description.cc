#include "common/model/heads/eagle/eagle_description.h"

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "common/model/checkpoint/json_fields.h"
#include "common/model/checkpoint/json_file.h"
#include "common/status.h"

namespace tandem {
namespace {

// How SpecForge and vLLM name the architecture of EAGLE-3's layer, which is Llama's.
constexpr std::array<std::string_view, 2> kLlamaNames = {"LlamaForCausalLMEagle3",
                                                         "Eagle3LlamaForCausalLM"};
constexpr const char* kLayerIds = "eagle_aux_hidden_state_layer_ids";

absl::Status CheckSame(const std::filesystem::path& folder, const std::string& field, size_t size,
                       size_t target) {
  if (size == target) return absl::OkStatus();
  return InvalidArgument((folder / "config.json").string() + ": " + field + " is " +
                         std::to_string(size) + ", the target has " + std::to_string(target) +
                         " (these are heads of another model)");
}

absl::Status CheckShape(const std::filesystem::path& folder, const ModelDescription& layer,
                        const ModelDescription& target) {
  const auto check = [&](const std::string& field, size_t size, size_t of_target) {
    return CheckSame(folder, field, size, of_target);
  };
  TANDEM_RETURN_IF_ERROR(check("hidden_size", layer.hidden_size, target.hidden_size));
  TANDEM_RETURN_IF_ERROR(check("vocab_size", layer.vocabulary_size, target.vocabulary_size));
  TANDEM_RETURN_IF_ERROR(
      check("num_key_value_heads", layer.attention.num_kv_heads, target.attention.num_kv_heads));
  TANDEM_RETURN_IF_ERROR(check("head_dim", layer.attention.head_size, target.attention.head_size));
  if (layer.num_layers != 1) {
    return InvalidArgument((folder / "config.json").string() + ": num_hidden_layers is " +
                           std::to_string(layer.num_layers) + ", want 1 (EAGLE has one layer)");
  }
  return absl::OkStatus();
}

// Reads a list of layers of the target.
std::vector<size_t> ReadLayers(const JsonFields& fields, size_t num_layers) {
  const nlohmann::json& list = *fields.Find(kLayerIds);
  bool is_good = list.is_array() && !list.empty() && list.size() <= EagleDescription::kMaxParts;
  std::vector<size_t> layers;
  for (size_t i = 0; is_good && i < list.size(); ++i) {
    is_good = list[i].is_number_unsigned();
    if (is_good) layers.push_back(list[i].get<size_t>());
  }
  const bool leaves = is_good && layers.front() == 1;
  for (size_t& layer : layers) {
    if (leaves && layer < num_layers) {
      ++layer;
    } else {
      is_good = is_good && !leaves && layer <= num_layers;
    }
  }
  if (!is_good) {
    fields.Refuse(kLayerIds, "is " + ShownJson(list) + " (want 1 to " +
                                 std::to_string(EagleDescription::kMaxParts) + " of the target's " +
                                 std::to_string(num_layers) + " layers)");
  }
  return layers;
}

RowFeatures ReadFeatures(const JsonFields& fields, size_t num_layers) {
  const std::optional<JsonFields> nested = fields.Object("eagle_config");
  std::vector<size_t> layers;
  if (nested && !nested->Boolean("use_aux_hidden_state", true)) {
    nested->Refuse("use_aux_hidden_state", "is false (not supported with EAGLE-3)");
  }
  if (nested && nested->Find(kLayerIds) != nullptr) {
    layers = ReadLayers(*nested, num_layers);
  } else if (fields.Find(kLayerIds) != nullptr) {
    layers = ReadLayers(fields, num_layers);
  } else if (num_layers < 4) {
    fields.Refuse(kLayerIds, "is missing (a target of " + std::to_string(num_layers) +
                                 " layers has too few for the default)");
  } else {
    layers = {2, num_layers / 2, num_layers - 3};
  }
  RowFeatures features;
  for (const size_t layer : layers) features.parts.push_back({layer, false});
  return features;
}

// Refuses variants whose tensors look alike.
void RefuseOtherNorms(const JsonFields& fields) {
  for (const char* const name : {"norm_before_residual", "norm_before_fc"}) {
    if (fields.Boolean(name, false)) fields.Refuse(name, "is true (not supported)");
  }
}

// Reads what config.json says of EAGLE-3 alone.
absl::Status ReadThird(const std::filesystem::path& folder, const ModelDescription& target,
                       EagleDescription* eagle) {
  const std::filesystem::path path = folder / "config.json";
  TANDEM_ASSIGN_OR_RETURN(const nlohmann::json object, ReadJsonFile(path, JsonLimits()));
  absl::Status status;
  const JsonFields fields(object, path.string(), "", status);
  TANDEM_RETURN_IF_ERROR(
      CheckSame(folder, "target_hidden_size",
                fields.Whole("target_hidden_size", 1, size_t{1} << 20, target.hidden_size),
                target.hidden_size));
  RefuseOtherNorms(fields);
  if (const auto nested = fields.Object("eagle_config")) RefuseOtherNorms(*nested);
  eagle->vocabulary_size =
      fields.Whole("draft_vocab_size", 1, target.vocabulary_size, target.vocabulary_size);
  eagle->features = ReadFeatures(fields, target.num_layers);
  return status;
}

}  // namespace

absl::StatusOr<EagleDescription> EagleDescription::Load(const std::filesystem::path& folder,
                                                        const Checkpoint& checkpoint,
                                                        const ModelDescription& target) {
  EagleDescription eagle;
  TANDEM_ASSIGN_OR_RETURN(eagle.layer, ModelDescription::Load(folder, kLlamaNames));
  TANDEM_RETURN_IF_ERROR(CheckShape(folder, eagle.layer, target));
  const bool has_middle = checkpoint.Has("midlayer.self_attn.q_proj.weight");
  eagle.prefix = has_middle ? "midlayer." : "layers.0.";
  eagle.is_third = has_middle || checkpoint.Has(eagle.prefix + "hidden_norm.weight");
  eagle.vocabulary_size = target.vocabulary_size;
  if (eagle.is_third) {
    TANDEM_RETURN_IF_ERROR(ReadThird(folder, target, &eagle));
  } else {
    eagle.features.parts = {{target.num_layers, true}};
  }
  eagle.layer.max_position_embeddings = target.max_position_embeddings;
  // The layer is the authors' own, whatever the target is. Only its queries, keys and values may
  // have biases.
  eagle.layer.attention.qkv_bias = checkpoint.Has(eagle.prefix + "self_attn.q_proj.bias");
  eagle.layer.attention.output_bias = false;
  eagle.layer.attention.has_head_norms = false;
  eagle.layer.mlp.has_bias = false;
  return eagle;
}

}  // namespace tandem
