#include "common/model/cuda/heads/cuda_drafter.h"

#include <utility>

#include "common/model/cuda/heads/cuda_eagle.h"
#include "common/model/cuda/heads/cuda_heads.h"
#include "common/model/cuda/heads/cuda_target_steps.h"
#include "common/model/heads/heads_kind.h"
#include "common/status.h"

namespace tandem {

absl::StatusOr<LoadedDrafter> LoadCudaDrafter(const std::filesystem::path& folder,
                                              const ModelDescription& target,
                                              const ModelWeights& target_weights,
                                              const CudaBackend* backend,
                                              const CudaDrafter::Options& options) {
  TANDEM_ASSIGN_OR_RETURN(const HeadsKind kind, KindOfHeads(folder));
  if (kind == HeadsKind::kEagle) {
    return CudaEagle::Load(folder, target, target_weights, backend, options);
  }
  if (kind == HeadsKind::kLayerSkip) {
    return CudaTargetSteps::LoadLayerSkip(folder, target, target_weights, backend, options);
  }
  if (kind == HeadsKind::kPass) {
    return CudaTargetSteps::LoadPass(folder, target, backend, options);
  }
  TANDEM_ASSIGN_OR_RETURN(auto heads,
                          CudaHeads::Load(folder, target, target_weights.output, backend, options));
  CudaDrafter* const device = heads.get();
  return LoadedDrafter{std::move(heads), device};
}

}  // namespace tandem
