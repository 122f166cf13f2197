// The device's side of a drafter beside the target.
#ifndef TANDEM_COMMON_MODEL_CUDA_HEADS_CUDA_DRAFTER_H_
#define TANDEM_COMMON_MODEL_CUDA_HEADS_CUDA_DRAFTER_H_

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/cuda/cuda_backend.h"
#include "common/model/cuda/cuda_kv_memory.h"
#include "common/model/cuda/cuda_weights.h"
#include "common/model/cuda/memory_taker.h"
#include "common/model/heads/self_drafter.h"
#include "common/model/model_description.h"
#include "common/model/model_weights.h"
#include "kernels/device/device_arena.h"
#include "kernels/device/device_stream.h"

namespace tandem {

// The calls are LayOut, Start, Upload and UsePages; then those of a SelfDrafter. Used by the thread
// that runs the model.
class CudaDrafter {
 public:
  struct Options {
    size_t max_places = 0;          // places of features
    size_t max_context = 0;         // largest number of rows of a cache
    bool exact_activations = true;  // see CudaModelOptions
  };

  virtual ~CudaDrafter() = default;

  // Takes the device memory besides the weights.
  virtual absl::Status LayOut(const MemoryTaker& take) = 0;
  // Called once, after the memory was taken. `stream` is used from then on. The drafter must
  // outlive the work on the stream.
  virtual absl::Status Start(const DeviceStream* stream) = 0;
  // Copies the weights, which take SelfDrafter::weight_bytes() of `arena`, and lets go of the
  // files.
  // `on_progress` is called with the bytes copied so far. Errors are those of CudaWeights::Upload,
  // or say that a file became shorter. `target` has what the drafter shares with the target.
  virtual absl::Status Upload(const CudaWeights& target, DeviceArena& arena,
                              const std::function<void(uint64_t)>& on_progress) = 0;
  // `pages` must outlive the drafter's passes.
  virtual void UsePages(CudaKvMemory* /*pages*/) {}
};

// A drafter, and the part of it that is on the device.
struct LoadedDrafter {
  std::unique_ptr<SelfDrafter> drafter;
  CudaDrafter* device = nullptr;
};

// Reads the heads of a folder for a target: Medusa's, blockwise ones, a layer of EAGLE, a list of
// layers to leave out, or look-ahead embeddings. Errors name the file, and the field or the tensor
// that does not fit.
// `backend` computes the target's passes, and must outlive the drafter. Before the drafter is used,
// it must keep the features of rows of logits, and store those that the drafter reads.
absl::StatusOr<LoadedDrafter> LoadCudaDrafter(const std::filesystem::path& folder,
                                              const ModelDescription& target,
                                              const ModelWeights& target_weights,
                                              const CudaBackend* backend,
                                              const CudaDrafter::Options& options);

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CUDA_HEADS_CUDA_DRAFTER_H_
