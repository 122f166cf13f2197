#include "services/cli/bench/model_operations.h"

#include "common/model/model_description.h"
#include "common/status.h"

namespace tandem::cli {

absl::StatusOr<double> WeightsPerToken(const std::filesystem::path& model_folder) {
  TANDEM_ASSIGN_OR_RETURN(const ModelDescription model, ModelDescription::Load(model_folder));
  const AttentionDescription& attention = model.attention;
  const size_t attention_columns = attention.qkv_floats() + attention.query_floats();
  const size_t layer = model.hidden_size * (attention_columns + 3 * model.mlp.inner_size);
  return static_cast<double>(model.num_layers * layer + model.hidden_size * model.vocabulary_size);
}

}  // namespace tandem::cli
