// Counts a model's arithmetic operations per token, from its config.json.
#ifndef TANDEM_SERVICES_CLI_BENCH_MODEL_OPERATIONS_H_
#define TANDEM_SERVICES_CLI_BENCH_MODEL_OPERATIONS_H_

#include <filesystem>

#include "absl/status/statusor.h"

namespace tandem::cli {

// Returns the number of weights that a token is multiplied with: projections, MLP, and logits, but
// not the embedding look-up. Each weight costs two operations. The ratio of two models' weights is
// therefore the ratio of their operations. Attention over the context is left out, as in the c-hat
// of Leviathan et al.
absl::StatusOr<double> WeightsPerToken(const std::filesystem::path& model_folder);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_BENCH_MODEL_OPERATIONS_H_
