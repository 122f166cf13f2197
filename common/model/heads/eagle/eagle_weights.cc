#include "common/model/heads/eagle/eagle_weights.h"

#include <functional>
#include <set>
#include <string>
#include <utility>

#include "common/model/heads/heads_weights.h"
#include "common/model/tensor_loader.h"
#include "common/status.h"

namespace tandem {
namespace {

// A tensor that nobody reads would change what the layer should compute.
absl::Status CheckNames(const Checkpoint& checkpoint, const EagleDescription& eagle) {
  std::set<std::string, std::less<>> known = {"fc.weight", "fc.bias", "embed_tokens.weight",
                                              "lm_head.weight"};
  for (const char* const name :
       {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight",
        "self_attn.o_proj.weight", "self_attn.rotary_emb.inv_freq",
        "post_attention_layernorm.weight", "mlp.gate_proj.weight", "mlp.up_proj.weight",
        "mlp.down_proj.weight"}) {
    known.insert(eagle.prefix + name);
  }
  if (eagle.layer.attention.qkv_bias) {
    for (const char* const name : {"q_proj", "k_proj", "v_proj"}) {
      known.insert(eagle.prefix + "self_attn." + name + ".bias");
    }
  }
  if (eagle.is_third) {
    known.insert({"norm.weight", "d2t", "t2d", eagle.prefix + "hidden_norm.weight",
                  eagle.prefix + "input_layernorm.weight"});
  }
  for (const std::string& name : checkpoint.names()) {
    if (known.contains(name)) continue;
    return InvalidArgument(checkpoint.FileOf(name) + ": tensor \"" + name + "\" is not one of " +
                           (eagle.is_third ? "EAGLE-3" : "EAGLE-1, EAGLE-2 or EAGLE-3"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<EagleWeights> EagleWeights::Load(const Checkpoint& checkpoint,
                                                const EagleDescription& eagle,
                                                const ModelWeights& target) {
  TANDEM_RETURN_IF_ERROR(CheckNames(checkpoint, eagle));
  const TensorLoader loader(checkpoint);
  const size_t hidden_size = eagle.layer.hidden_size;
  const NamedSize hidden = {hidden_size, "hidden_size"};
  const NamedSize vocabulary = {eagle.layer.vocabulary_size, "vocab_size"};
  const NamedSize known = {eagle.vocabulary_size, "draft_vocab_size"};
  const NamedSize fused = eagle.is_third ? NamedSize{eagle.features.parts.size() * hidden_size,
                                                     "states of the target * hidden_size"}
                                         : NamedSize{2 * hidden_size, "2 * hidden_size"};
  EagleWeights weights;
  TANDEM_ASSIGN_OR_RETURN(weights.fuse,
                          loader.Matrix("fc", hidden, fused, checkpoint.Has("fc.bias")));
  TANDEM_ASSIGN_OR_RETURN(weights.layer, LoadLayerWeights(loader, eagle.layer, eagle.prefix,
                                                          eagle.is_third, eagle.is_third ? 2 : 1));
  if (eagle.is_third) {
    TANDEM_ASSIGN_OR_RETURN(weights.state_norm,
                            loader.Vector(eagle.prefix + "hidden_norm.weight", hidden));
    TANDEM_ASSIGN_OR_RETURN(weights.output_norm, loader.Vector("norm.weight", hidden));
  }
  if (eagle.is_third && (checkpoint.Has("d2t") || known.value < vocabulary.value)) {
    TANDEM_ASSIGN_OR_RETURN(weights.token_map,
                            loader.TokenIds("d2t", known, vocabulary.value, true));
  }
  weights.has_own_embedding = checkpoint.Has("embed_tokens.weight");
  weights.embedding = target.embedding;
  if (weights.has_own_embedding) {
    TANDEM_ASSIGN_OR_RETURN(weights.embedding,
                            loader.Matrix("embed_tokens", vocabulary, hidden, false));
  }
  // The target's own output product knows all tokens.
  weights.has_own_output = checkpoint.Has("lm_head.weight") || !weights.token_map.empty();
  weights.output = target.output;
  if (weights.has_own_output) {
    TANDEM_ASSIGN_OR_RETURN(weights.output, loader.Matrix("lm_head", known, hidden, false));
  }
  return weights;
}

double EagleWeights::StepCost(const ModelWeights& target) const {
  // In EAGLE-3, the steps of a tree read guesses, and no states of the target that are fused.
  const bool is_third = !state_norm.empty();
  const uint64_t step = (is_third ? 0 : fuse.bytes()) + layer.bytes() + output.bytes();
  return static_cast<double>(step) / static_cast<double>(target.pass_bytes());
}

absl::StatusOr<OpenedEagle> OpenedEagle::Open(const std::filesystem::path& folder,
                                              const ModelDescription& target,
                                              const ModelWeights& target_weights) {
  OpenedEagle opened;
  TANDEM_ASSIGN_OR_RETURN(opened.checkpoint, OpenHeads(folder));
  TANDEM_ASSIGN_OR_RETURN(opened.description,
                          EagleDescription::Load(folder, *opened.checkpoint, target));
  TANDEM_ASSIGN_OR_RETURN(
      opened.weights, EagleWeights::Load(*opened.checkpoint, opened.description, target_weights));
  opened.checkpoint->WillNeed();
  return opened;
}

StepTraits OpenedEagle::Traits(const ModelWeights& target_weights) const {
  return {.name = "eagle",
          .keeps_rows = true,
          .features = description.features,
          .token_map = weights.token_map,
          .step_cost = weights.StepCost(target_weights)};
}

}  // namespace tandem
