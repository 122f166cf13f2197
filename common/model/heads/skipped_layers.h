// Which layers of a target a drafter leaves out, as config.json of its folder states it.
#ifndef TANDEM_COMMON_MODEL_HEADS_SKIPPED_LAYERS_H_
#define TANDEM_COMMON_MODEL_HEADS_SKIPPED_LAYERS_H_

#include <cstddef>
#include <filesystem>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/heads/step_drafter.h"
#include "common/model/model_description.h"
#include "common/model/model_weights.h"

namespace tandem {

// The target without some of its layers drafts for itself: with the first layers alone (LayerSkip,
// Elhoushi et al. 2024, arXiv 2404.16710), or without a set of them (Draft & Verify, Zhang et al.
// 2023, arXiv 2309.08168). It has no weights of its own. Its rows attend to the target's own keys
// and values.
struct SkippedLayers {
  std::vector<size_t> kept;  // layers that are computed, in ascending order: some, and not all

  // Reads `skipped_layers` and `num_hidden_layers` (the target's). INVALID_ARGUMENT names the file
  // and the field.
  static absl::StatusOr<SkippedLayers> Load(const std::filesystem::path& folder,
                                            const ModelDescription& target);

  StepTraits Traits(const ModelWeights& target) const;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_HEADS_SKIPPED_LAYERS_H_
