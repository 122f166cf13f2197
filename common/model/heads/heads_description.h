// What heads of the Medusa family compute, as config.json of their folder states it.
#ifndef TANDEM_COMMON_MODEL_HEADS_HEADS_DESCRIPTION_H_
#define TANDEM_COMMON_MODEL_HEADS_HEADS_DESCRIPTION_H_

#include <cstddef>
#include <filesystem>

#include "absl/status/statusor.h"
#include "common/model/model_description.h"

namespace tandem {

// Head i guesses the token i + 2 places after the token whose feature it reads; the target itself
// gives the one after it. A head has residual layers, x = x + silu(W x + b), and an output product.
struct HeadsDescription {
  // How the tensors are named.
  enum class Layout {
    kBlocks,    // vLLM: blocks.HEAD.layers.LAYER.weight, lm_heads.HEAD.weight
    kNumbered,  // FasterDecoding/Medusa: HEAD.LAYER.linear.weight, HEAD.LAYERS.weight
  };
  Layout layout = Layout::kBlocks;
  size_t num_heads = 0;
  size_t num_layers = 0;  // residual layers in each head
  bool has_bias = false;  // the residual layers have biases
  // All heads have one output product: lm_heads.0.weight, or the target's own if the file has none.
  bool shares_output = false;
  size_t vocabulary_size = 0;  // tokens that the heads know; fewer than the target's with a map

  static constexpr size_t kMaxHeads = 16;

  // Reads config.json of `folder`. INVALID_ARGUMENT names the file, and the field that is
  // unsupported or does not fit `target`. NOT_FOUND: there is no config.json.
  static absl::StatusOr<HeadsDescription> Load(const std::filesystem::path& folder,
                                               const ModelDescription& target);
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_HEADS_HEADS_DESCRIPTION_H_
