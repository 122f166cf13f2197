#include "common/model/cuda/heads/cuda_eagle.h"

#include <utility>

#include "common/model/cuda/weight_uploader.h"
#include "common/model/heads/step_drafter.h"
#include "common/status.h"
#include "kernels/rms_norm.h"

namespace tandem {

absl::StatusOr<LoadedDrafter> CudaEagle::Load(const std::filesystem::path& folder,
                                              const ModelDescription& target,
                                              const ModelWeights& target_weights,
                                              const CudaBackend* backend, const Options& options) {
  TANDEM_ASSIGN_OR_RETURN(OpenedEagle opened, OpenedEagle::Open(folder, target, target_weights));
  TANDEM_RETURN_IF_ERROR(CheckForGpu(folder, opened.description.layer, {&opened.weights.layer, 1}));
  StepTraits traits = opened.Traits(target_weights);
  std::unique_ptr<CudaEagle> device(new CudaEagle(std::make_unique<OpenedEagle>(std::move(opened)),
                                                  backend, options, target.num_layers));
  CudaDrafter* const part = device.get();
  return LoadedDrafter{std::make_unique<StepDrafter>(std::move(device), std::move(traits)), part};
}

CudaEagle::CudaEagle(std::unique_ptr<OpenedEagle> opened, const CudaBackend* backend,
                     const Options& options, size_t layer_index)
    : CudaSteps(&opened->description.layer, backend, options),
      opened_(std::move(opened)),
      layer_index_(layer_index),
      weight_bytes_(CudaEagleWeights::Bytes(opened_->weights)) {}

absl::Status CudaEagle::LayOut(const MemoryTaker& take) {
  const char* const what = "rows of EAGLE";
  const size_t hidden = opened_->description.layer.hidden_size;
  const int num_parts = NumBf16Parts(options().exact_activations);
  TANDEM_RETURN_IF_ERROR(CudaSteps::LayOut(take));
  TANDEM_RETURN_IF_ERROR(
      LayOutRows(&fused_, kMaxRows, opened_->weights.fuse.in_features, num_parts, what, take));
  if (!opened_->description.is_third) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(LayOutRows(&joined_, kMaxRows, 2 * hidden, num_parts, what, take));
  return take(&floats_, kMaxRows * hidden, what);
}

absl::Status CudaEagle::Upload(const CudaWeights& target, DeviceArena& arena,
                               const std::function<void(uint64_t)>& on_progress) {
  TANDEM_ASSIGN_OR_RETURN(WeightUploader uploader,
                          WeightUploader::Create(arena, stream(), on_progress));
  TANDEM_ASSIGN_OR_RETURN(weights_, CudaEagleWeights::Upload(opened_->weights, target, uploader));
  TANDEM_RETURN_IF_ERROR(stream().Wait());
  TANDEM_RETURN_IF_ERROR(opened_->checkpoint->CheckWhole());
  SetOutput(weights_.output, weights_.output_norm);
  opened_->weights = {};
  opened_->checkpoint.reset();
  return absl::OkStatus();
}

absl::Status CudaEagle::ClearRowZero(KvCache& cache) {
  return pages().ClearRow(layer_index_, cache.PageIndex(0), 0);
}

absl::Status CudaEagle::Compute(const StepPass& pass) {
  const bool reads_guesses = pass.rows.front().guess >= 0;
  const size_t hidden = opened_->description.layer.hidden_size;
  const Table states =
      reads_guesses ? Table{guesses(), hidden, hidden}
                    : Table{pages().features(), opened_->description.features.parts.size() * hidden,
                            pages().feature_stride()};
  const bool is_third = opened_->description.is_third;
  TANDEM_RETURN_IF_ERROR(is_third ? BeginWithStates(states, reads_guesses) : Fuse(states));
  TANDEM_RETURN_IF_ERROR(Qkv(weights_.layer, is_third ? joined_ : layer().normed(), layer_index_));
  TANDEM_RETURN_IF_ERROR(Attend(weights_.layer, layer_index_, /*hidden_rows=*/1));
  TANDEM_RETURN_IF_ERROR(layer().Output(weights_.layer));
  return layer().Mlp(weights_.layer);
}

absl::Status CudaEagle::Fuse(const Table& states) {
  const size_t hidden = opened_->description.layer.hidden_size;
  const size_t rows = layer().rows();
  TANDEM_RETURN_IF_ERROR(Embed(weights_.embedding, fused_));
  TANDEM_RETURN_IF_ERROR(Gather(states, numbers().sources(), rows, fused_.FromColumn(hidden)));
  TANDEM_RETURN_IF_ERROR(
      layer().Product(weights_.fuse, fused_, {.data = layer().hidden(), .stride = hidden}));
  return Gather({layer().hidden(), hidden, hidden}, nullptr, rows, layer().normed());
}

absl::Status CudaEagle::BeginWithStates(const Table& states, bool are_guesses) {
  const size_t hidden = opened_->description.layer.hidden_size;
  const size_t rows = layer().rows();
  const CudaLinear& qkv = weights_.layer.qkv;
  if (are_guesses) {
    TANDEM_RETURN_IF_ERROR(
        Gather(states, numbers().sources(), rows, {layer().hidden(), hidden, Bf16Rows()}));
  } else {
    TANDEM_RETURN_IF_ERROR(Gather(states, numbers().sources(), rows, fused_));
    TANDEM_RETURN_IF_ERROR(
        layer().Product(weights_.fuse, fused_, {.data = layer().hidden(), .stride = hidden}));
  }
  TANDEM_RETURN_IF_ERROR(Embed(weights_.embedding, {floats_, hidden, Bf16Rows()}));
  TANDEM_RETURN_IF_ERROR(Norm(weights_.layer.attention_norm, floats_, qkv, joined_));
  return Norm(weights_.state_norm, layer().hidden(), qkv, joined_.FromColumn(hidden));
}

absl::Status CudaEagle::Norm(const float* weight, const float* x, const CudaLinear& linear,
                             const ProductRows& to) {
  const ModelDescription& model = opened_->description.layer;
  return RmsNorm({.x = x,
                  .x_stride = model.hidden_size,
                  .rows = layer().rows(),
                  .size = model.hidden_size,
                  .weight = weight,
                  .eps = static_cast<float>(model.norm_eps),
                  .out = to.floats,
                  .out_stride = to.floats_stride,
                  .out_bf16 = to.For(linear.dtype)},
                 stream().get());
}

}  // namespace tandem
