#include "common/model/heads/cpu_target_steps.h"

#include <numeric>
#include <utility>

#include "common/model/heads/pass/look_ahead_drafter.h"
#include "common/model/heads/skipped_layers.h"
#include "common/model/heads/step_drafter.h"
#include "common/status.h"
#include "kernels/embedding.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<SelfDrafter>> CpuTargetSteps::LoadLayerSkip(
    const std::filesystem::path& folder, const ModelDescription& target,
    const ModelWeights& target_weights, ThreadPool* pool) {
  TANDEM_ASSIGN_OR_RETURN(SkippedLayers layers, SkippedLayers::Load(folder, target));
  StepTraits traits = layers.Traits(target_weights);
  std::unique_ptr<CpuTargetSteps> device(
      new CpuTargetSteps(std::move(layers.kept), {}, target, target_weights, pool));
  return std::make_unique<StepDrafter>(std::move(device), std::move(traits));
}

absl::StatusOr<std::unique_ptr<SelfDrafter>> CpuTargetSteps::LoadPass(
    const std::filesystem::path& folder, const ModelDescription& target,
    const ModelWeights& target_weights, ThreadPool* pool) {
  TANDEM_ASSIGN_OR_RETURN(LookAheadTable look_ahead, LookAheadTable::Open(folder, target));
  const size_t num_rows = look_ahead.num_rows();
  std::vector<size_t> layers(target.num_layers);
  std::iota(layers.begin(), layers.end(), size_t{0});
  std::unique_ptr<CpuTargetSteps> device(
      new CpuTargetSteps(std::move(layers), std::move(look_ahead), target, target_weights, pool));
  return std::make_unique<LookAheadDrafter>(std::move(device), num_rows);
}

CpuTargetSteps::CpuTargetSteps(std::vector<size_t> layers, LookAheadTable look_ahead,
                               const ModelDescription& target, const ModelWeights& weights,
                               ThreadPool* pool)
    : CpuSteps(&target, &weights.output, &weights.final_norm, pool),
      layers_(std::move(layers)),
      look_ahead_(std::move(look_ahead)),
      weights_(weights) {}

void CpuTargetSteps::Compute(const StepPass& pass) {
  Embed(weights_.embedding, layer().hidden());
  EmbedLookAhead(pass);
  for (const size_t index : layers_) {
    const LayerWeights& weights = weights_.layers[index];
    layer().Norm(weights.attention_norm);
    layer().Qkv(weights, layer().normed());
    Attend(weights, pass, index, /*hidden_rows=*/0);
    layer().Output(weights);
    layer().Mlp(weights);
  }
}

void CpuTargetSteps::EmbedLookAhead(const StepPass& pass) {
  const Linear& table = look_ahead_.embeddings;
  for (size_t row = 0; row < pass.rows.size(); ++row) {
    const int32_t& entry = pass.rows[row].look_ahead;
    if (entry < 0) continue;
    tandem::Embed({.table = table.weight,
                   .dtype = table.dtype,
                   .size = table.in_features,
                   .ids = &entry,
                   .rows = 1,
                   .out = layer().hidden().row(row),
                   .out_stride = layer().hidden().stride()});
  }
}

}  // namespace tandem
