// A layer of EAGLE on the CPU.
#ifndef TANDEM_COMMON_MODEL_HEADS_EAGLE_CPU_EAGLE_H_
#define TANDEM_COMMON_MODEL_HEADS_EAGLE_CPU_EAGLE_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/heads/cpu_steps.h"
#include "common/model/heads/eagle/eagle_weights.h"
#include "common/model/heads/step_drafter.h"
#include "common/model/model_description.h"
#include "common/model/scratch_rows.h"
#include "kernels/thread_pool.h"

namespace tandem {

// The layer's keys and values of row j come from token j and the feature of row j - 1. They lie in
// row j of the target's pages, after those of the target's layers. Row 0 has no feature before it,
// and nobody sees it (docs/adr/0029-rows-of-eagle-in-the-targets-pages.md).
class CpuEagle final : public CpuSteps {
 public:
  // Loads the layer of a folder for a target. Errors are those of OpenedEagle::Open. The other
  // arguments must outlive the drafter.
  static absl::StatusOr<std::unique_ptr<StepDrafter>> Load(const std::filesystem::path& folder,
                                                           const ModelDescription& target,
                                                           const ModelWeights& target_weights,
                                                           ThreadPool* pool);

  uint64_t weight_bytes() const override { return opened_->checkpoint->mapped_bytes(); }
  absl::Status Check() const override { return opened_->checkpoint->CheckWhole(); }
  absl::Status ClearRowZero(KvCache& cache) override;

 private:
  CpuEagle(std::unique_ptr<const OpenedEagle> opened, size_t layer_index, ThreadPool* pool);

  void Compute(const StepPass& pass) override;
  // Sets states_.
  void FindStates(const StepPass& pass);
  // EAGLE-1 and EAGLE-2: residual stream = product of [embedding, feature].
  void Fuse();
  // EAGLE-3: residual stream = product of the target's states, or a guess. input_ = [norm of the
  // embedding, norm of the residual stream].
  void BeginWithStates(bool are_guesses);

  std::unique_ptr<const OpenedEagle> opened_;
  size_t layer_index_;  // the layer's place on the pages

  // State of a pass.
  std::vector<const float*> states_;  // what each row reads: a feature or a guess
  ScratchRows features_;              // [rows, parts of the feature * hidden]
  ScratchRows input_;                 // [rows, 2 * hidden]
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_HEADS_EAGLE_CPU_EAGLE_H_
