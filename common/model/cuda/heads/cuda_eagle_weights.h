// The weights of a layer of EAGLE in device memory.
#ifndef TANDEM_COMMON_MODEL_CUDA_HEADS_CUDA_EAGLE_WEIGHTS_H_
#define TANDEM_COMMON_MODEL_CUDA_HEADS_CUDA_EAGLE_WEIGHTS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/model/cuda/cuda_linear.h"
#include "common/model/cuda/cuda_weights.h"
#include "common/model/cuda/weight_uploader.h"
#include "common/model/heads/eagle/eagle_weights.h"

namespace tandem {

// Like EagleWeights, with pointers into device memory.
struct CudaEagleWeights {
  // Returns the bytes of device memory that Upload takes.
  static uint64_t Bytes(const EagleWeights& weights);
  // Enqueues the copies of all tensors that are not the target's. Errors are those of the uploader.
  // PRECOND: the tensors of one product have one type.
  static absl::StatusOr<CudaEagleWeights> Upload(const EagleWeights& weights,
                                                 const CudaWeights& target,
                                                 WeightUploader& uploader);

  CudaLinear fuse;
  CudaLayerWeights layer;
  const float* state_norm = nullptr;   // null before EAGLE-3
  const float* output_norm = nullptr;  // null before EAGLE-3
  CudaLinear embedding;
  CudaLinear output;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CUDA_HEADS_CUDA_EAGLE_WEIGHTS_H_
