#include "common/model/heads/heads_description.h"

#include <string>

#include "common/model/checkpoint/json_fields.h"
#include "common/model/checkpoint/json_file.h"
#include "common/status.h"

namespace tandem {
namespace {

constexpr size_t kMaxLayers = 8;

// A size that is the target's too.
void CheckSame(const JsonFields& fields, const std::string& name, size_t target) {
  const size_t size = fields.Whole(name, 1, size_t{1} << 24, target);
  if (size != target) {
    fields.Refuse(name, "is " + std::to_string(size) + ", the target has " +
                            std::to_string(target) + " (these are heads of another model)");
  }
}

HeadsDescription ReadBlocks(const JsonFields& fields, const ModelDescription& target) {
  HeadsDescription heads;
  heads.layout = HeadsDescription::Layout::kBlocks;
  heads.num_heads = fields.Whole("num_heads", 1, HeadsDescription::kMaxHeads);
  heads.num_layers = fields.Whole("num_hidden_layers", 1, kMaxLayers, 1);
  heads.has_bias = fields.Boolean("medusa_fc_bias", false);
  heads.shares_output = fields.Boolean("original_lm_head", false);
  heads.vocabulary_size =
      fields.Whole("truncated_vocab_size", 1, target.vocabulary_size, target.vocabulary_size);
  return heads;
}

HeadsDescription ReadNumbered(const JsonFields& fields, const ModelDescription& target) {
  HeadsDescription heads;
  heads.layout = HeadsDescription::Layout::kNumbered;
  heads.num_heads = fields.Whole("medusa_num_heads", 1, HeadsDescription::kMaxHeads);
  heads.num_layers = fields.Whole("medusa_num_layers", 1, kMaxLayers);
  heads.has_bias = true;
  heads.vocabulary_size = target.vocabulary_size;
  return heads;
}

}  // namespace

absl::StatusOr<HeadsDescription> HeadsDescription::Load(const std::filesystem::path& folder,
                                                        const ModelDescription& target) {
  const std::filesystem::path path = folder / "config.json";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return NotFound(path.string() + ": is missing (want a folder of Medusa heads)");
  }
  TANDEM_ASSIGN_OR_RETURN(const nlohmann::json object, ReadJsonFile(path, JsonLimits()));
  if (!object.is_object()) return InvalidArgument(path.string() + ": is not a JSON object");
  absl::Status status;
  const JsonFields fields(object, path.string(), "", status);
  CheckSame(fields, "hidden_size", target.hidden_size);
  CheckSame(fields, "vocab_size", target.vocabulary_size);
  const bool is_numbered = fields.Find("medusa_num_heads") != nullptr;
  if (!is_numbered && fields.Find("num_heads") == nullptr) {
    return InvalidArgument(path.string() +
                           ": has neither num_heads nor medusa_num_heads (want a folder of Medusa "
                           "heads)");
  }
  const HeadsDescription heads =
      is_numbered ? ReadNumbered(fields, target) : ReadBlocks(fields, target);
  if (!status.ok()) return status;
  return heads;
}

}  // namespace tandem
