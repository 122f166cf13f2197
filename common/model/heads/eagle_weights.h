// The weights of a layer of EAGLE. Matrices stay in place in the mapped files.
#ifndef TANDEM_COMMON_MODEL_HEADS_EAGLE_WEIGHTS_H_
#define TANDEM_COMMON_MODEL_HEADS_EAGLE_WEIGHTS_H_

#include <filesystem>
#include <memory>

#include "absl/status/statusor.h"
#include "common/model/checkpoint/checkpoint.h"
#include "common/model/linear.h"
#include "common/model/model_description.h"
#include "common/model/model_weights.h"

namespace tandem {

// EAGLE (Li et al. 2024, arXiv 2401.15077) and EAGLE-2 (arXiv 2406.16858, the same weights) guess
// the feature of the next token: the row that the target's output product takes. The layer's input
// is the product `fuse` of [embedding of a token, feature of the token before it]. A decoder layer
// without a norm before its attention follows, and its result is the guessed feature.
struct EagleWeights {
  Linear fuse;         // 2 * hidden -> hidden; its bias is optional
  LayerWeights layer;  // attention_norm is empty
  Linear embedding;    // the target's, if the file has none
  Linear output;       // the target's, if the file has none

  // Reads config.json of a folder, and checks it against the target. The layer's keys and values
  // lie on the target's pages, so the shapes of both must agree. The caller says whether queries,
  // keys and values have biases. INVALID_ARGUMENT names the file and the field.
  static absl::StatusOr<ModelDescription> Describe(const std::filesystem::path& folder,
                                                   const ModelDescription& target);
  // Reads the tensors by the names of SafeAILab/EAGLE: fc.weight, fc.bias, layers.0.*,
  // embed_tokens.weight, lm_head.weight. INVALID_ARGUMENT names the file and a tensor that these
  // versions do not have. Other errors name the file and the tensor too. `checkpoint` must outlive
  // the weights. `target` gives what the file lacks.
  static absl::StatusOr<EagleWeights> Load(const Checkpoint& checkpoint,
                                           const ModelDescription& eagle,
                                           const ModelWeights& target);

  // Returns the cost of a pass of the layer, in passes of the target: both read their weights once.
  double StepCost(const ModelWeights& target) const;
};

// The files of a layer of EAGLE.
struct OpenedEagle {
  ModelDescription description;
  std::unique_ptr<Checkpoint> checkpoint;
  EagleWeights weights;

  // Opens a folder for a target. Errors are those of EagleWeights, or name a file that cannot be
  // read. `target_weights` must outlive the weights.
  static absl::StatusOr<OpenedEagle> Open(const std::filesystem::path& folder,
                                          const ModelDescription& target,
                                          const ModelWeights& target_weights);
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_HEADS_EAGLE_WEIGHTS_H_
