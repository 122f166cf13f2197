// How much arithmetic a model does for a token, from its config.json.
#ifndef TANDEM_SERVICES_CLI_BENCH_MODEL_OPERATIONS_H_
#define TANDEM_SERVICES_CLI_BENCH_MODEL_OPERATIONS_H_

#include <filesystem>

#include "absl/status/statusor.h"

namespace tandem::cli {

// Weights that a token is multiplied with (projections, MLP and the logits; not the embedding
// look-up): operations are two for each, so the ratio of two models' weights is that of their
// operations. Attention over the context is left out, as in c-hat of Leviathan et al.
absl::StatusOr<double> WeightsPerToken(const std::filesystem::path& model_folder);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_BENCH_MODEL_OPERATIONS_H_
