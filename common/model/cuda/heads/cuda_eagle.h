// A layer of EAGLE on the GPU of its target.
#ifndef TANDEM_COMMON_MODEL_CUDA_HEADS_CUDA_EAGLE_H_
#define TANDEM_COMMON_MODEL_CUDA_HEADS_CUDA_EAGLE_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/cuda/cuda_backend.h"
#include "common/model/cuda/cuda_linear.h"
#include "common/model/cuda/cuda_weights.h"
#include "common/model/cuda/heads/cuda_drafter.h"
#include "common/model/cuda/heads/cuda_eagle_weights.h"
#include "common/model/cuda/heads/cuda_steps.h"
#include "common/model/cuda/memory_taker.h"
#include "common/model/heads/eagle/eagle_weights.h"
#include "kernels/device/device_stream.h"

namespace tandem {

// The layer computes as CpuEagle says.
class CudaEagle final : public CudaSteps {
 public:
  // Errors are those of OpenedEagle::Open and CheckForGpu. `backend` computes the target's passes,
  // and must outlive the drafter.
  static absl::StatusOr<LoadedDrafter> Load(const std::filesystem::path& folder,
                                            const ModelDescription& target,
                                            const ModelWeights& target_weights,
                                            const CudaBackend* backend, const Options& options);

  absl::Status LayOut(const MemoryTaker& take) override;
  absl::Status Upload(const CudaWeights& target, DeviceArena& arena,
                      const std::function<void(uint64_t)>& on_progress) override;

  uint64_t weight_bytes() const override { return weight_bytes_; }
  absl::Status ClearRowZero(KvCache& cache) override;

 private:
  CudaEagle(std::unique_ptr<OpenedEagle> opened, const CudaBackend* backend, const Options& options,
            size_t layer_index);

  absl::Status Compute(const StepPass& pass) override;
  // EAGLE-1 and EAGLE-2: residual stream = product of [embedding, what the row reads], and
  // layer().normed() = the same rows.
  absl::Status Fuse(const Table& states);
  // EAGLE-3: residual stream = product of the target's states, or a guess. joined_ = [norm of the
  // embedding, norm of the residual stream].
  absl::Status BeginWithStates(const Table& states, bool are_guesses);
  // Norms of rows [rows, hidden] go to rows that a product with `linear` takes.
  absl::Status Norm(const float* weight, const float* x, const CudaLinear& linear,
                    const ProductRows& to);

  std::unique_ptr<OpenedEagle> opened_;  // only the description after Upload
  size_t layer_index_;                   // the layer's place on the pages
  uint64_t weight_bytes_;
  CudaEagleWeights weights_;
  ProductRows fused_;        // [kMaxRows, what EagleWeights::fuse takes]
  ProductRows joined_;       // [kMaxRows, 2 * hidden], only in EAGLE-3
  float* floats_ = nullptr;  // [kMaxRows, hidden] embeddings, only in EAGLE-3
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CUDA_HEADS_CUDA_EAGLE_H_
