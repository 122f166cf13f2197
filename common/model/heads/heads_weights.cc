#include "common/model/heads/heads_weights.h"

#include <string>
#include <utility>

#include "common/model/tensor_loader.h"
#include "common/status.h"

namespace tandem {
namespace {

using Layout = HeadsDescription::Layout;

// The names of the tensors of a layout.
class TensorNames {
 public:
  TensorNames(const Checkpoint& checkpoint, const HeadsDescription& heads) : heads_(heads) {
    const std::string prefix = heads.layout == Layout::kBlocks ? "medusa_heads." : "medusa_head.";
    if (checkpoint.Has(prefix + Layer(0, 0) + ".weight")) prefix_ = prefix;
  }

  std::string Layer(size_t head, size_t layer) const {
    if (heads_.layout == Layout::kBlocks) {
      return prefix_ + "blocks." + std::to_string(head) + ".layers." + std::to_string(layer);
    }
    return prefix_ + std::to_string(head) + "." + std::to_string(layer) + ".linear";
  }
  std::string Output(size_t head) const {
    if (heads_.layout == Layout::kBlocks) return prefix_ + "lm_heads." + std::to_string(head);
    return prefix_ + std::to_string(head) + "." + std::to_string(heads_.num_layers);
  }
  std::string TokenMap() const { return prefix_ + "token_map"; }

 private:
  const HeadsDescription& heads_;
  std::string prefix_;
};

}  // namespace

absl::StatusOr<HeadsWeights> HeadsWeights::Load(const Checkpoint& checkpoint,
                                                const HeadsDescription& heads,
                                                const ModelDescription& target,
                                                const Linear& target_output) {
  const TensorLoader loader(checkpoint);
  const TensorNames names(checkpoint, heads);
  const NamedSize hidden = {target.hidden_size, "hidden_size of the target"};
  const NamedSize tokens = {heads.vocabulary_size, "truncated_vocab_size"};
  HeadsWeights weights;
  weights.shares_output = heads.shares_output;
  weights.uses_target_output = heads.shares_output && !checkpoint.Has(names.Output(0) + ".weight");
  if (tokens.value < target.vocabulary_size) {
    if (weights.uses_target_output) {
      return InvalidArgument(checkpoint.FileOf(names.Output(0)) + ": tensor \"" + names.Output(0) +
                             ".weight\" is missing (with truncated_vocab_size, the heads need an "
                             "output product of their own)");
    }
    TANDEM_ASSIGN_OR_RETURN(weights.token_map,
                            loader.TokenIds(names.TokenMap(), tokens, target.vocabulary_size));
  }
  for (size_t i = 0; i < heads.num_heads; ++i) {
    HeadWeights head;
    for (size_t layer = 0; layer < heads.num_layers; ++layer) {
      TANDEM_ASSIGN_OR_RETURN(head.layers.emplace_back(),
                              loader.Matrix(names.Layer(i, layer), hidden, hidden, heads.has_bias));
    }
    if (weights.uses_target_output) {
      head.output = target_output;
    } else if (weights.shares_output && i > 0) {
      head.output = weights.heads.front().output;
    } else {
      TANDEM_ASSIGN_OR_RETURN(head.output, loader.Matrix(names.Output(i), tokens, hidden, false));
    }
    weights.heads.push_back(std::move(head));
  }
  return weights;
}

absl::StatusOr<std::unique_ptr<Checkpoint>> OpenHeads(const std::filesystem::path& folder) {
  const std::filesystem::path numbered = folder / "medusa_lm_head.safetensors";
  std::error_code ignored;
  if (std::filesystem::exists(numbered, ignored)) return Checkpoint::OpenFile(numbered);
  if (std::filesystem::exists(folder / "model.safetensors", ignored)) {
    return Checkpoint::Open(folder);
  }
  for (const auto& [pickle, converter] : {std::pair("medusa_lm_head.pt", "convert_medusa.py"),
                                          std::pair("pytorch_model.bin", "convert_eagle.py")}) {
    if (std::filesystem::exists(folder / pickle, ignored)) {
      return InvalidArgument((folder / pickle).string() +
                             ": is a pickle, which could run code; make a safetensors file of it "
                             "with tools/train_pair/" +
                             converter);
    }
  }
  return NotFound(folder.string() +
                  ": has neither model.safetensors nor medusa_lm_head.safetensors");
}

}  // namespace tandem
