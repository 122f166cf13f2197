#include "common/model/heads/pass/look_ahead_table.h"

#include <string>

#include "common/model/checkpoint/json_fields.h"
#include "common/model/checkpoint/json_file.h"
#include "common/model/tensor_loader.h"
#include "common/status.h"

namespace tandem {

absl::StatusOr<LookAheadTable> LookAheadTable::Open(const std::filesystem::path& folder,
                                                    const ModelDescription& target) {
  const std::filesystem::path path = folder / "config.json";
  TANDEM_ASSIGN_OR_RETURN(const nlohmann::json object, ReadJsonFile(path, JsonLimits()));
  if (!object.is_object()) return InvalidArgument(path.string() + ": is not a JSON object");
  absl::Status status;
  const JsonFields fields(object, path.string(), "", status);
  const NamedSize rows = {fields.Whole("num_lookahead_tokens", 1, kMaxRows),
                          "num_lookahead_tokens"};
  const NamedSize hidden = {fields.Whole("hidden_size", 1, size_t{1} << 24), "hidden_size"};
  if (!status.ok()) return status;
  if (hidden.value != target.hidden_size) {
    return InvalidArgument(path.string() + ": hidden_size is " + std::to_string(hidden.value) +
                           ", the target has " + std::to_string(target.hidden_size) +
                           " (these are embeddings for another model)");
  }
  LookAheadTable table;
  TANDEM_ASSIGN_OR_RETURN(table.checkpoint, Checkpoint::Open(folder));
  TANDEM_ASSIGN_OR_RETURN(table.embeddings, TensorLoader(*table.checkpoint)
                                                .Matrix("lookahead", rows, hidden,
                                                        /*has_bias=*/false));
  return table;
}

}  // namespace tandem
