// Which family of drafters a folder of heads holds.
#ifndef TANDEM_COMMON_MODEL_HEADS_HEADS_KIND_H_
#define TANDEM_COMMON_MODEL_HEADS_HEADS_KIND_H_

#include <filesystem>

#include "absl/status/statusor.h"

namespace tandem {

enum class HeadsKind {
  kMedusa,     // Medusa and blockwise heads (HeadsDescription)
  kEagle,      // a layer of EAGLE (EagleWeights)
  kLayerSkip,  // a list of layers that the target leaves out (SkippedLayers)
  kPass,       // look-ahead embeddings of the target (LookAheadTable)
};

// Reads config.json. NOT_FOUND: there is no config.json. INVALID_ARGUMENT names the file: it is not
// JSON, or describes no heads that Tandem knows.
absl::StatusOr<HeadsKind> KindOfHeads(const std::filesystem::path& folder);

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_HEADS_HEADS_KIND_H_
