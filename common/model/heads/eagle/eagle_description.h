// What a layer of EAGLE computes, as its folder states it.
#ifndef TANDEM_COMMON_MODEL_HEADS_EAGLE_DESCRIPTION_H_
#define TANDEM_COMMON_MODEL_HEADS_EAGLE_DESCRIPTION_H_

#include <cstddef>
#include <filesystem>
#include <string>

#include "absl/status/statusor.h"
#include "common/model/checkpoint/checkpoint.h"
#include "common/model/model_description.h"
#include "common/model/row_features.h"

namespace tandem {

struct EagleDescription {
  ModelDescription layer;      // as of a model with one layer, which has the target's vocabulary
  bool is_third = false;       // EAGLE-3; otherwise EAGLE-1 or EAGLE-2, whose layers are alike
  std::string prefix;          // with it, the names of the layer's tensors begin
  size_t vocabulary_size = 0;  // tokens that the layer knows
  RowFeatures features;        // what it reads of the target's rows

  // Largest number of states of the target in a feature.
  static constexpr size_t kMaxParts = 8;

  // Reads config.json of a folder, and checks it against the target. The names of the tensors say
  // which version it is. The layer's keys and values lie on the target's pages, so the shapes of
  // both must agree. INVALID_ARGUMENT names the file and the field.
  //
  // EAGLE-3 reads the states that enter the target's layers 2, layers / 2 and layers - 3, or those
  // that eagle_aux_hidden_state_layer_ids gives, at the top level or in eagle_config. Two meanings
  // of these ids are in use. As SGLang does, a list that begins with 1 is taken for layers that the
  // states leave, and any other one for layers that they enter
  // (https://github.com/sgl-project/sglang/pull/25454).
  static absl::StatusOr<EagleDescription> Load(const std::filesystem::path& folder,
                                               const Checkpoint& checkpoint,
                                               const ModelDescription& target);
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_HEADS_EAGLE_DESCRIPTION_H_
