// Drafters that take their rows through layers of the target itself, on the CPU.
#ifndef TANDEM_COMMON_MODEL_HEADS_CPU_TARGET_STEPS_H_
#define TANDEM_COMMON_MODEL_HEADS_CPU_TARGET_STEPS_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/heads/cpu_steps.h"
#include "common/model/heads/pass/look_ahead_table.h"
#include "common/model/heads/self_drafter.h"
#include "common/model/model_description.h"
#include "common/model/model_weights.h"
#include "kernels/thread_pool.h"

namespace tandem {

// Rows attend to the target's own keys and values of the text.
class CpuTargetSteps final : public CpuSteps {
 public:
  // Loads the drafter that leaves layers out. Errors are those of SkippedLayers::Load. The
  // arguments of both functions must outlive the drafter.
  static absl::StatusOr<std::unique_ptr<SelfDrafter>> LoadLayerSkip(
      const std::filesystem::path& folder, const ModelDescription& target,
      const ModelWeights& target_weights, ThreadPool* pool);
  // Loads the drafter of PaSS, which takes look-ahead rows through all layers. Errors are those of
  // LookAheadTable::Open.
  static absl::StatusOr<std::unique_ptr<SelfDrafter>> LoadPass(const std::filesystem::path& folder,
                                                               const ModelDescription& target,
                                                               const ModelWeights& target_weights,
                                                               ThreadPool* pool);

  uint64_t weight_bytes() const override {
    return look_ahead_.checkpoint == nullptr ? 0 : look_ahead_.checkpoint->mapped_bytes();
  }
  // The target's passes check its own files.
  absl::Status Check() const override {
    return look_ahead_.checkpoint == nullptr ? absl::OkStatus()
                                             : look_ahead_.checkpoint->CheckWhole();
  }

 private:
  // `layers` are computed, in ascending order. `look_ahead` is empty if no rows look ahead.
  CpuTargetSteps(std::vector<size_t> layers, LookAheadTable look_ahead,
                 const ModelDescription& target, const ModelWeights& weights, ThreadPool* pool);

  void Compute(const StepPass& pass) override;
  // Puts look-ahead embeddings in the place of those of tokens.
  void EmbedLookAhead(const StepPass& pass);

  std::vector<size_t> layers_;
  LookAheadTable look_ahead_;
  const ModelWeights& weights_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_HEADS_CPU_TARGET_STEPS_H_
