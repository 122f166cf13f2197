#include "common/model/heads/cpu_layer_skip.h"

#include <utility>

#include "common/status.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<StepDrafter>> CpuLayerSkip::Load(const std::filesystem::path& folder,
                                                                const ModelDescription& target,
                                                                const ModelWeights& target_weights,
                                                                ThreadPool* pool) {
  TANDEM_ASSIGN_OR_RETURN(SkippedLayers layers, SkippedLayers::Load(folder, target));
  StepTraits traits = layers.Traits(target_weights);
  std::unique_ptr<CpuLayerSkip> device(
      new CpuLayerSkip(std::move(layers), target, target_weights, pool));
  return std::make_unique<StepDrafter>(std::move(device), std::move(traits));
}

CpuLayerSkip::CpuLayerSkip(SkippedLayers layers, const ModelDescription& target,
                           const ModelWeights& weights, ThreadPool* pool)
    : CpuSteps(&target, &weights.output, &weights.final_norm, pool),
      layers_(std::move(layers)),
      weights_(weights) {}

void CpuLayerSkip::Compute(const StepPass& pass) {
  Embed(weights_.embedding, layer().hidden());
  for (const size_t index : layers_.kept) {
    const LayerWeights& weights = weights_.layers[index];
    layer().Norm(weights.attention_norm);
    layer().Qkv(weights, layer().normed());
    Attend(weights, pass, index, /*hidden_rows=*/0);
    layer().Output(weights);
    layer().Mlp(weights);
  }
}

}  // namespace tandem
