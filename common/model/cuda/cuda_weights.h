// The weights of a decoder in device memory.
#ifndef TANDEM_COMMON_MODEL_CUDA_CUDA_WEIGHTS_H_
#define TANDEM_COMMON_MODEL_CUDA_CUDA_WEIGHTS_H_

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/cuda/cuda_linear.h"
#include "common/model/cuda/weight_uploader.h"
#include "common/model/model_description.h"
#include "common/model/model_weights.h"
#include "kernels/device/device_arena.h"
#include "kernels/device/device_stream.h"

namespace tandem {

// Like LayerWeights, with pointers into device memory. Products that take the same rows are one
// product here, because a few large ones use a GPU better than many small ones.
struct CudaLayerWeights {
  // Returns the bytes of device memory that Upload takes.
  static uint64_t Bytes(const LayerWeights& layer);
  // Enqueues the copies of all tensors. Errors are those of the uploader. PRECOND: the tensors of
  // one product have one type.
  static absl::StatusOr<CudaLayerWeights> Upload(const LayerWeights& layer,
                                                 WeightUploader& uploader);

  const float* attention_norm = nullptr;  // null: the layer has none
  CudaLinear qkv;                         // features of the queries, then the keys, then the values
  const float* query_norm = nullptr;      // null: the model has no head norms
  const float* key_norm = nullptr;
  CudaLinear attention_output;
  const float* mlp_norm = nullptr;
  CudaLinear gate_up;  // features of the gate, then those of up
  CudaLinear down;
};

// Checks what a GPU asks of a model and a CPU does not: sizes are multiples of 8, and the tensors
// of one product (Q, K and V; gate and up) have one type. INVALID_ARGUMENT names config.json and
// the field, or the folder, the layer and the tensors.
absl::Status CheckForGpu(const std::filesystem::path& folder, const ModelDescription& model,
                         std::span<const LayerWeights> layers);

struct CudaWeights {
  CudaLinear embedding;
  std::vector<CudaLayerWeights> layers;
  const float* final_norm = nullptr;
  CudaLinear output;  // uses the embedding's memory if they are tied

  // Returns the bytes of device memory that Upload takes.
  static uint64_t Bytes(const ModelWeights& weights);

  // Copies all of `weights` into `arena`. The copy is complete on return, and `weights` are no
  // longer needed. `on_progress` is called with the bytes copied so far. RESOURCE_EXHAUSTED: the
  // arena is too small. Other errors come from the device. PRECOND: the tensors of one product have
  // one type.
  static absl::StatusOr<CudaWeights> Upload(const ModelWeights& weights, DeviceArena& arena,
                                            const DeviceStream& stream,
                                            const std::function<void(uint64_t)>& on_progress);
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CUDA_CUDA_WEIGHTS_H_
