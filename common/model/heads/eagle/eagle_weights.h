// The weights of a layer of EAGLE. Matrices stay in place in the mapped files.
#ifndef TANDEM_COMMON_MODEL_HEADS_EAGLE_EAGLE_WEIGHTS_H_
#define TANDEM_COMMON_MODEL_HEADS_EAGLE_EAGLE_WEIGHTS_H_

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/checkpoint/checkpoint.h"
#include "common/model/heads/eagle/eagle_description.h"
#include "common/model/heads/step_drafter.h"
#include "common/model/linear.h"
#include "common/model/model_description.h"
#include "common/model/model_weights.h"

namespace tandem {

// EAGLE (Li et al. 2024, arXiv 2401.15077) and EAGLE-2 (arXiv 2406.16858, the same weights) guess
// the feature of the next token: the row that the target's output product takes. The layer's input
// is the product `fuse` of [embedding of a token, feature of the token before it]. A decoder layer
// without a norm before its attention follows, and its result is the guessed feature.
//
// EAGLE-3 (Li et al. 2025, arXiv 2503.01840) guesses a state of its own. The residual stream begins
// with the state of the token before: the product `fuse` of the target's states, or a guess.
// Queries, keys and values are products of [norm of the token's embedding, norm of that state]. The
// layer's result is the guess. Its norm goes to the output product.
struct EagleWeights {
  Linear fuse;                     // the target's rows, as above, -> hidden; its bias is optional
  LayerWeights layer;              // attention_norm is the embedding's in EAGLE-3, and empty before
  std::vector<float> state_norm;   // [hidden], only in EAGLE-3
  std::vector<float> output_norm;  // [hidden], only in EAGLE-3
  Linear embedding;                // the target's, if the file has none
  Linear output;                   // the target's, if the file has none
  bool has_own_embedding = false;
  bool has_own_output = false;
  std::vector<int32_t> token_map;  // as StepTraits has it

  // Reads the tensors by the names of SafeAILab/EAGLE: fc.weight, fc.bias, layers.0.*,
  // embed_tokens.weight, lm_head.weight. In EAGLE-3, the layer is midlayer.* or layers.0.*, and
  // norm.weight, d2t and t2d come with it. (t2d follows from d2t, and is not read.)
  // INVALID_ARGUMENT names the file and a tensor that the version does not have. Other errors name
  // the file and the tensor too. `checkpoint` must outlive the weights. `target` gives what the
  // file lacks.
  static absl::StatusOr<EagleWeights> Load(const Checkpoint& checkpoint,
                                           const EagleDescription& eagle,
                                           const ModelWeights& target);

  // Returns the cost of a pass of the layer, in passes of the target: both read their weights once.
  double StepCost(const ModelWeights& target) const;
};

// The files of a layer of EAGLE.
struct OpenedEagle {
  EagleDescription description;
  std::unique_ptr<Checkpoint> checkpoint;
  EagleWeights weights;

  // Opens a folder for a target. Errors are those of EagleDescription and EagleWeights, or name a
  // file that cannot be read. `target_weights` must outlive the weights.
  static absl::StatusOr<OpenedEagle> Open(const std::filesystem::path& folder,
                                          const ModelDescription& target,
                                          const ModelWeights& target_weights);
  StepTraits Traits(const ModelWeights& target_weights) const;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_HEADS_EAGLE_EAGLE_WEIGHTS_H_
