#include "common/model/heads/eagle/cpu_eagle.h"

#include <algorithm>
#include <utility>

#include "common/status.h"
#include "kernels/matmul.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<StepDrafter>> CpuEagle::Load(const std::filesystem::path& folder,
                                                            const ModelDescription& target,
                                                            const ModelWeights& target_weights,
                                                            ThreadPool* pool) {
  TANDEM_ASSIGN_OR_RETURN(OpenedEagle opened, OpenedEagle::Open(folder, target, target_weights));
  StepTraits traits = opened.Traits(target_weights);
  std::unique_ptr<CpuEagle> device(new CpuEagle(
      std::make_unique<const OpenedEagle>(std::move(opened)), target.num_layers, pool));
  return std::make_unique<StepDrafter>(std::move(device), std::move(traits));
}

CpuEagle::CpuEagle(std::unique_ptr<const OpenedEagle> opened, size_t layer_index, ThreadPool* pool)
    : CpuSteps(&opened->description.layer, &opened->weights.output, &opened->weights.output_norm,
               pool),
      opened_(std::move(opened)),
      layer_index_(layer_index) {}

absl::Status CpuEagle::ClearRowZero(KvCache& cache) {
  const std::vector<float> zeros(opened_->description.layer.attention.kv_floats());
  StoreKv({.kv = cache.Layer(layer_index_),
           .first_row = 0,
           .rows = 1,
           .keys = zeros.data(),
           .keys_stride = zeros.size(),
           .values = zeros.data(),
           .values_stride = zeros.size()});
  return absl::OkStatus();
}

void CpuEagle::FindStates(const StepPass& pass) {
  states_.clear();
  size_t row = 0;
  for (const StepPass::Sequence& sequence : pass.sequences) {
    for (size_t i = 0; i < sequence.rows; ++i) {
      const StepPass::Row& from = pass.rows[row++];
      states_.push_back(from.guess < 0 ? sequence.cache->Feature(from.position - 1)
                                       : guess(from.guess));
    }
  }
}

void CpuEagle::Fuse() {
  const size_t hidden = opened_->description.layer.hidden_size;
  input_.Resize(states_.size(), 2 * hidden);
  Embed(opened_->weights.embedding, input_);
  for (size_t row = 0; row < states_.size(); ++row) {
    std::copy_n(states_[row], hidden, input_.row(row) + hidden);
  }
  const MatMulArgs fused = layer().Product(opened_->weights.fuse, input_, layer().hidden());
  MatMul({&fused, 1}, pool());
}

void CpuEagle::BeginWithStates(bool are_guesses) {
  const EagleWeights& weights = opened_->weights;
  const size_t hidden = opened_->description.layer.hidden_size;
  ScratchRows& stream = layer().hidden();
  const size_t size = are_guesses ? hidden : weights.fuse.in_features;
  if (!are_guesses) features_.Resize(states_.size(), size);
  for (size_t row = 0; row < states_.size(); ++row) {
    std::copy_n(states_[row], size, are_guesses ? stream.row(row) : features_.row(row));
  }
  if (!are_guesses) {
    const MatMulArgs fused = layer().Product(weights.fuse, features_, stream);
    MatMul({&fused, 1}, pool());
  }
  input_.Resize(states_.size(), 2 * hidden);
  Embed(weights.embedding, input_);
  Norm(weights.layer.attention_norm, input_, input_, 0);
  Norm(weights.state_norm, stream, input_, hidden);
}

void CpuEagle::Compute(const StepPass& pass) {
  const LayerWeights& weights = opened_->weights.layer;
  FindStates(pass);
  if (opened_->description.is_third) {
    BeginWithStates(pass.rows.front().guess >= 0);
    layer().Qkv(weights, input_);
  } else {
    Fuse();
    layer().Qkv(weights, layer().hidden());
  }
  Attend(weights, pass, layer_index_, /*hidden_rows=*/1);
  layer().Output(weights);
  layer().Mlp(weights);
}

}  // namespace tandem
