#include "common/model/cuda/heads/cuda_layer_skip.h"

#include <memory>
#include <utility>

#include "common/model/heads/step_drafter.h"
#include "common/status.h"

namespace tandem {

absl::StatusOr<LoadedDrafter> CudaLayerSkip::Load(const std::filesystem::path& folder,
                                                  const ModelDescription& target,
                                                  const ModelWeights& target_weights,
                                                  const CudaBackend* backend,
                                                  const Options& options) {
  TANDEM_ASSIGN_OR_RETURN(SkippedLayers layers, SkippedLayers::Load(folder, target));
  StepTraits traits = layers.Traits(target_weights);
  std::unique_ptr<CudaLayerSkip> device(
      new CudaLayerSkip(std::move(layers), target, backend, options));
  CudaDrafter* const part = device.get();
  return LoadedDrafter{std::make_unique<StepDrafter>(std::move(device), std::move(traits)), part};
}

CudaLayerSkip::CudaLayerSkip(SkippedLayers layers, const ModelDescription& target,
                             const CudaBackend* backend, const Options& options)
    : CudaSteps(&target, backend, options),
      layers_(std::move(layers)),
      hidden_size_(target.hidden_size) {}

absl::Status CudaLayerSkip::Upload(const CudaWeights& target, DeviceArena& /*arena*/,
                                   const std::function<void(uint64_t)>& /*on_progress*/) {
  weights_ = &target;
  SetOutput(target.output, target.final_norm);
  return absl::OkStatus();
}

absl::Status CudaLayerSkip::Compute(const StepPass& /*pass*/) {
  TANDEM_RETURN_IF_ERROR(Embed(weights_->embedding, {layer().hidden(), hidden_size_, Bf16Rows()}));
  for (const size_t index : layers_.kept) {
    const CudaLayerWeights& weights = weights_->layers[index];
    TANDEM_RETURN_IF_ERROR(layer().Norm(weights.attention_norm, weights.qkv));
    TANDEM_RETURN_IF_ERROR(layer().Qkv(weights, layer().normed()));
    TANDEM_RETURN_IF_ERROR(Attend(weights, index, /*hidden_rows=*/0));
    TANDEM_RETURN_IF_ERROR(layer().Output(weights));
    TANDEM_RETURN_IF_ERROR(layer().Mlp(weights));
  }
  return absl::OkStatus();
}

}  // namespace tandem
