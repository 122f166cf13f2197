#include "common/model/cuda/heads/cuda_target_steps.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "common/model/cuda/weight_uploader.h"
#include "common/model/heads/pass/look_ahead_drafter.h"
#include "common/model/heads/skipped_layers.h"
#include "common/model/heads/step_drafter.h"
#include "common/status.h"
#include "kernels/embedding.h"

namespace tandem {

absl::StatusOr<LoadedDrafter> CudaTargetSteps::LoadLayerSkip(const std::filesystem::path& folder,
                                                             const ModelDescription& target,
                                                             const ModelWeights& target_weights,
                                                             const CudaBackend* backend,
                                                             const Options& options) {
  TANDEM_ASSIGN_OR_RETURN(SkippedLayers layers, SkippedLayers::Load(folder, target));
  StepTraits traits = layers.Traits(target_weights);
  std::unique_ptr<CudaTargetSteps> device(
      new CudaTargetSteps(std::move(layers.kept), {}, target, backend, options));
  CudaDrafter* const part = device.get();
  return LoadedDrafter{std::make_unique<StepDrafter>(std::move(device), std::move(traits)), part};
}

absl::StatusOr<LoadedDrafter> CudaTargetSteps::LoadPass(const std::filesystem::path& folder,
                                                        const ModelDescription& target,
                                                        const CudaBackend* backend,
                                                        const Options& options) {
  TANDEM_ASSIGN_OR_RETURN(LookAheadTable look_ahead, LookAheadTable::Open(folder, target));
  const size_t num_rows = look_ahead.num_rows();
  std::vector<size_t> layers(target.num_layers);
  std::iota(layers.begin(), layers.end(), size_t{0});
  std::unique_ptr<CudaTargetSteps> device(
      new CudaTargetSteps(std::move(layers), std::move(look_ahead), target, backend, options));
  CudaDrafter* const part = device.get();
  return LoadedDrafter{std::make_unique<LookAheadDrafter>(std::move(device), num_rows), part};
}

CudaTargetSteps::CudaTargetSteps(std::vector<size_t> layers, LookAheadTable look_ahead,
                                 const ModelDescription& target, const CudaBackend* backend,
                                 const Options& options)
    : CudaSteps(&target, backend, options),
      layers_(std::move(layers)),
      look_ahead_(std::move(look_ahead)),
      weight_bytes_(
          look_ahead_.checkpoint == nullptr ? 0 : WeightUploader::Bytes(look_ahead_.embeddings)),
      hidden_size_(target.hidden_size) {}

absl::Status CudaTargetSteps::Upload(const CudaWeights& target, DeviceArena& arena,
                                     const std::function<void(uint64_t)>& on_progress) {
  weights_ = &target;
  SetOutput(target.output, target.final_norm);
  if (look_ahead_.checkpoint == nullptr) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(WeightUploader uploader,
                          WeightUploader::Create(arena, stream(), on_progress));
  TANDEM_ASSIGN_OR_RETURN(embeddings_,
                          uploader.Copy(look_ahead_.embeddings, "look-ahead embeddings"));
  TANDEM_RETURN_IF_ERROR(stream().Wait());
  TANDEM_RETURN_IF_ERROR(look_ahead_.checkpoint->CheckWhole());
  look_ahead_ = {};
  return absl::OkStatus();
}

absl::Status CudaTargetSteps::Compute(const StepPass& pass) {
  TANDEM_RETURN_IF_ERROR(Embed(weights_->embedding, {layer().hidden(), hidden_size_, Bf16Rows()}));
  TANDEM_RETURN_IF_ERROR(EmbedLookAhead(pass));
  for (const size_t index : layers_) {
    const CudaLayerWeights& weights = weights_->layers[index];
    TANDEM_RETURN_IF_ERROR(layer().Norm(weights.attention_norm, weights.qkv));
    TANDEM_RETURN_IF_ERROR(Qkv(weights, layer().normed(), index));
    TANDEM_RETURN_IF_ERROR(Attend(weights, index, /*hidden_rows=*/0));
    TANDEM_RETURN_IF_ERROR(layer().Output(weights));
    TANDEM_RETURN_IF_ERROR(layer().Mlp(weights));
  }
  return absl::OkStatus();
}

absl::Status CudaTargetSteps::EmbedLookAhead(const StepPass& pass) {
  for (size_t row = 0; row < pass.rows.size();) {
    size_t run = 0;  // look-ahead rows side by side, with the embeddings 0, 1, …
    while (row + run < pass.rows.size() &&
           pass.rows[row + run].look_ahead == static_cast<int32_t>(run)) {
      ++run;
    }
    if (run > 0) {
      TANDEM_RETURN_IF_ERROR(tandem::Embed({.table = embeddings_.weight,
                                            .dtype = embeddings_.dtype,
                                            .size = hidden_size_,
                                            .ids = nullptr,
                                            .rows = run,
                                            .out = layer().hidden() + row * hidden_size_,
                                            .out_stride = hidden_size_},
                                           stream().get()));
    }
    row += std::max<size_t>(run, 1);
  }
  return absl::OkStatus();
}

}  // namespace tandem
