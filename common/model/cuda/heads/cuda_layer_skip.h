// A target that drafts without some of its layers, on its GPU.
#ifndef TANDEM_COMMON_MODEL_CUDA_HEADS_CUDA_LAYER_SKIP_H_
#define TANDEM_COMMON_MODEL_CUDA_HEADS_CUDA_LAYER_SKIP_H_

#include <cstdint>
#include <filesystem>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/cuda/cuda_backend.h"
#include "common/model/cuda/cuda_weights.h"
#include "common/model/cuda/heads/cuda_drafter.h"
#include "common/model/cuda/heads/cuda_steps.h"
#include "common/model/heads/skipped_layers.h"
#include "common/model/model_description.h"
#include "common/model/model_weights.h"

namespace tandem {

class CudaLayerSkip final : public CudaSteps {
 public:
  // Errors are those of SkippedLayers::Load. `target` and `backend` must outlive the drafter.
  static absl::StatusOr<LoadedDrafter> Load(const std::filesystem::path& folder,
                                            const ModelDescription& target,
                                            const ModelWeights& target_weights,
                                            const CudaBackend* backend, const Options& options);

  // Takes the target's weights, which must outlive the drafter.
  absl::Status Upload(const CudaWeights& target, DeviceArena& arena,
                      const std::function<void(uint64_t)>& on_progress) override;

  uint64_t weight_bytes() const override { return 0; }

 private:
  CudaLayerSkip(SkippedLayers layers, const ModelDescription& target, const CudaBackend* backend,
                const Options& options);

  absl::Status Compute(const StepPass& pass) override;

  SkippedLayers layers_;
  size_t hidden_size_;
  const CudaWeights* weights_ = nullptr;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CUDA_HEADS_CUDA_LAYER_SKIP_H_
