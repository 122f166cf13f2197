// The weights of a decoder in device memory.
#ifndef TANDEM_COMMON_MODEL_CUDA_CUDA_WEIGHTS_H_
#define TANDEM_COMMON_MODEL_CUDA_CUDA_WEIGHTS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/cuda/cuda_linear.h"
#include "common/model/model_weights.h"
#include "kernels/device/device_arena.h"
#include "kernels/device/device_stream.h"

namespace tandem {

// Like LayerWeights, with pointers into device memory. Products that take the same rows are one
// product here, because a few large ones use a GPU better than many small ones.
struct CudaLayerWeights {
  const float* attention_norm = nullptr;
  CudaLinear qkv;                     // features of the queries, then the keys, then the values
  const float* query_norm = nullptr;  // null: the model has no head norms
  const float* key_norm = nullptr;
  CudaLinear attention_output;
  const float* mlp_norm = nullptr;
  CudaLinear gate_up;  // features of the gate, then those of up
  CudaLinear down;
};

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
