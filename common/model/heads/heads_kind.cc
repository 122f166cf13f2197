#include "common/model/heads/heads_kind.h"

#include "common/model/checkpoint/json_file.h"
#include "common/status.h"

namespace tandem {

absl::StatusOr<HeadsKind> KindOfHeads(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return NotFound(path.string() + ": is missing (want a folder of heads)");
  }
  TANDEM_ASSIGN_OR_RETURN(const nlohmann::json object, ReadJsonFile(path, JsonLimits()));
  if (!object.is_object()) return InvalidArgument(path.string() + ": is not a JSON object");
  if (object.contains("num_heads") || object.contains("medusa_num_heads")) {
    return HeadsKind::kMedusa;
  }
  if (object.contains("skipped_layers")) return HeadsKind::kLayerSkip;
  if (object.contains("num_lookahead_tokens")) return HeadsKind::kPass;
  if (object.contains("num_attention_heads")) return HeadsKind::kEagle;
  if (object.contains("transformer_layer_config")) {
    return InvalidArgument(path.string() +
                           ": has transformer_layer_config, as the library speculators writes it "
                           "(want the layout of SafeAILab/EAGLE)");
  }
  return InvalidArgument(path.string() +
                         ": has neither num_heads nor medusa_num_heads (Medusa heads), nor "
                         "num_attention_heads (EAGLE), nor skipped_layers (layer skip), nor "
                         "num_lookahead_tokens (PaSS)");
}

}  // namespace tandem
