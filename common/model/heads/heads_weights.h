// The weights of heads of the Medusa family. Matrices stay in place in the mapped files.
#ifndef TANDEM_COMMON_MODEL_HEADS_HEADS_WEIGHTS_H_
#define TANDEM_COMMON_MODEL_HEADS_HEADS_WEIGHTS_H_

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/checkpoint/checkpoint.h"
#include "common/model/heads/heads_description.h"
#include "common/model/linear.h"
#include "common/model/model_description.h"

namespace tandem {

struct HeadWeights {
  std::vector<Linear> layers;  // residual: hidden -> hidden
  Linear output;               // hidden -> tokens that the heads know
};

struct HeadsWeights {
  std::vector<HeadWeights> heads;
  // All heads have the first one's output product, or, if uses_target_output, the target's own.
  bool shares_output = false;
  bool uses_target_output = false;
  // [i]: the target's id of the heads' token i; empty: the same ids.
  std::vector<int32_t> token_map;

  // The drafter's name in the API. With the target's own output product, the heads are those of
  // blockwise parallel decoding (Stern et al. 2018, arXiv 1811.03115).
  const char* drafter() const { return uses_target_output ? "blockwise" : "medusa"; }

  // Reads the tensors, and checks the type and the shape of each. Errors name the file and the
  // tensor. `checkpoint` must outlive the weights. `target_output` is the target's output product.
  static absl::StatusOr<HeadsWeights> Load(const Checkpoint& checkpoint,
                                           const HeadsDescription& heads,
                                           const ModelDescription& target,
                                           const Linear& target_output);
};

// Opens the file of weights in a folder of heads. Errors say what to do about a pickle.
absl::StatusOr<std::unique_ptr<Checkpoint>> OpenHeads(const std::filesystem::path& folder);

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_HEADS_HEADS_WEIGHTS_H_
