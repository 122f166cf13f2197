// Drafters that take their rows through layers of the target itself, on its GPU.
#ifndef TANDEM_COMMON_MODEL_CUDA_HEADS_CUDA_TARGET_STEPS_H_
#define TANDEM_COMMON_MODEL_CUDA_HEADS_CUDA_TARGET_STEPS_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/cuda/cuda_backend.h"
#include "common/model/cuda/cuda_linear.h"
#include "common/model/cuda/cuda_weights.h"
#include "common/model/cuda/heads/cuda_drafter.h"
#include "common/model/cuda/heads/cuda_steps.h"
#include "common/model/heads/pass/look_ahead_table.h"
#include "common/model/model_description.h"
#include "common/model/model_weights.h"
#include "kernels/device/device_arena.h"

namespace tandem {

// It computes as CpuTargetSteps.
class CudaTargetSteps final : public CudaSteps {
 public:
  // Errors are those of SkippedLayers::Load. `target` and `backend` of both functions must outlive
  // the drafter.
  static absl::StatusOr<LoadedDrafter> LoadLayerSkip(const std::filesystem::path& folder,
                                                     const ModelDescription& target,
                                                     const ModelWeights& target_weights,
                                                     const CudaBackend* backend,
                                                     const Options& options);
  // Errors are those of LookAheadTable::Open.
  static absl::StatusOr<LoadedDrafter> LoadPass(const std::filesystem::path& folder,
                                                const ModelDescription& target,
                                                const CudaBackend* backend, const Options& options);

  // Takes the target's weights, which must outlive the drafter, and copies the look-ahead
  // embeddings.
  absl::Status Upload(const CudaWeights& target, DeviceArena& arena,
                      const std::function<void(uint64_t)>& on_progress) override;

  uint64_t weight_bytes() const override { return weight_bytes_; }

 private:
  // `layers` are computed, in ascending order. `look_ahead` is empty if no rows look ahead.
  CudaTargetSteps(std::vector<size_t> layers, LookAheadTable look_ahead,
                  const ModelDescription& target, const CudaBackend* backend,
                  const Options& options);

  absl::Status Compute(const StepPass& pass) override;
  // Puts look-ahead embeddings in the place of those of tokens.
  absl::Status EmbedLookAhead(const StepPass& pass);

  std::vector<size_t> layers_;
  LookAheadTable look_ahead_;  // empty after Upload
  uint64_t weight_bytes_;
  size_t hidden_size_;
  CudaLinear embeddings_;  // those of look_ahead_, on the device
  const CudaWeights* weights_ = nullptr;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CUDA_HEADS_CUDA_TARGET_STEPS_H_
