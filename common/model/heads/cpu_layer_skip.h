// A target that drafts without some of its layers, on the CPU.
#ifndef TANDEM_COMMON_MODEL_HEADS_CPU_LAYER_SKIP_H_
#define TANDEM_COMMON_MODEL_HEADS_CPU_LAYER_SKIP_H_

#include <cstdint>
#include <filesystem>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/heads/cpu_steps.h"
#include "common/model/heads/skipped_layers.h"
#include "common/model/heads/step_drafter.h"
#include "common/model/model_description.h"
#include "common/model/model_weights.h"
#include "kernels/thread_pool.h"

namespace tandem {

class CpuLayerSkip final : public CpuSteps {
 public:
  // Errors are those of SkippedLayers::Load. The arguments must outlive the drafter.
  static absl::StatusOr<std::unique_ptr<StepDrafter>> Load(const std::filesystem::path& folder,
                                                           const ModelDescription& target,
                                                           const ModelWeights& target_weights,
                                                           ThreadPool* pool);

  uint64_t weight_bytes() const override { return 0; }
  // The target's passes check its files.
  absl::Status Check() const override { return absl::OkStatus(); }

 private:
  CpuLayerSkip(SkippedLayers layers, const ModelDescription& target, const ModelWeights& weights,
               ThreadPool* pool);

  void Compute(const StepPass& pass) override;

  SkippedLayers layers_;
  const ModelWeights& weights_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_HEADS_CPU_LAYER_SKIP_H_
