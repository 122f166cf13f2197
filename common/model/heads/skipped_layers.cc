#include "common/model/heads/skipped_layers.h"

#include <cstdint>
#include <string>

#include "common/model/checkpoint/json_fields.h"
#include "common/model/checkpoint/json_file.h"
#include "common/status.h"

namespace tandem {

absl::StatusOr<SkippedLayers> SkippedLayers::Load(const std::filesystem::path& folder,
                                                  const ModelDescription& target) {
  const std::filesystem::path path = folder / "config.json";
  TANDEM_ASSIGN_OR_RETURN(const nlohmann::json object, ReadJsonFile(path, JsonLimits()));
  if (!object.is_object()) return InvalidArgument(path.string() + ": is not a JSON object");
  absl::Status status;
  const JsonFields fields(object, path.string(), "", status);
  const size_t num_layers = fields.Whole("num_hidden_layers", 1, 1024);
  if (!status.ok()) return status;
  if (num_layers != target.num_layers) {
    return InvalidArgument(path.string() + ": num_hidden_layers is " + std::to_string(num_layers) +
                           ", the target has " + std::to_string(target.num_layers) +
                           " (these are layers of another model)");
  }
  const nlohmann::json* const list = fields.Find("skipped_layers");
  std::vector<bool> is_skipped(num_layers);
  size_t num_skipped = 0;
  bool is_good = list != nullptr && list->is_array();
  for (size_t i = 0; is_good && i < list->size(); ++i) {
    const nlohmann::json& layer = (*list)[i];
    is_good = layer.is_number_unsigned() && layer.get<uint64_t>() < num_layers &&
              !is_skipped[layer.get<size_t>()];
    if (!is_good) break;
    is_skipped[layer.get<size_t>()] = true;
    ++num_skipped;
  }
  if (!is_good || num_skipped == 0 || num_skipped == num_layers) {
    return InvalidArgument(path.string() + ": skipped_layers is " +
                           (list == nullptr ? "missing" : ShownJson(*list)) +
                           " (want a list of different layers from 0 to " +
                           std::to_string(num_layers - 1) + ": at least one, and not all)");
  }
  SkippedLayers layers;
  for (size_t layer = 0; layer < num_layers; ++layer) {
    if (!is_skipped[layer]) layers.kept.push_back(layer);
  }
  return layers;
}

StepTraits SkippedLayers::Traits(const ModelWeights& target) const {
  uint64_t step = target.output.bytes();
  for (const size_t layer : kept) step += target.layers[layer].bytes();
  StepTraits traits;
  traits.name = "layer_skip";
  traits.step_cost = static_cast<double>(step) / static_cast<double>(target.pass_bytes());
  return traits;
}

}  // namespace tandem
