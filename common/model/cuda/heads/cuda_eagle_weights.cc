#include "common/model/cuda/heads/cuda_eagle_weights.h"

#include "common/status.h"

namespace tandem {

uint64_t CudaEagleWeights::Bytes(const EagleWeights& weights) {
  uint64_t bytes = CudaLayerWeights::Bytes(weights.layer);
  const auto add = [&](const auto& value) { bytes += WeightUploader::Bytes(value); };
  add(weights.fuse);
  add(weights.state_norm);
  add(weights.output_norm);
  if (weights.has_own_embedding) add(weights.embedding);
  if (weights.has_own_output) add(weights.output);
  return bytes;
}

absl::StatusOr<CudaEagleWeights> CudaEagleWeights::Upload(const EagleWeights& weights,
                                                          const CudaWeights& target,
                                                          WeightUploader& uploader) {
  CudaEagleWeights to;
  TANDEM_ASSIGN_OR_RETURN(to.fuse, uploader.Copy(weights.fuse, "fc of EAGLE"));
  TANDEM_ASSIGN_OR_RETURN(to.layer, CudaLayerWeights::Upload(weights.layer, uploader));
  TANDEM_ASSIGN_OR_RETURN(to.state_norm, uploader.Copy(weights.state_norm, "a norm of EAGLE"));
  TANDEM_ASSIGN_OR_RETURN(to.output_norm, uploader.Copy(weights.output_norm, "a norm of EAGLE"));
  to.embedding = target.embedding;
  if (weights.has_own_embedding) {
    TANDEM_ASSIGN_OR_RETURN(to.embedding,
                            uploader.Copy(weights.embedding, "the embedding of EAGLE"));
  }
  to.output = target.output;
  if (weights.has_own_output) {
    TANDEM_ASSIGN_OR_RETURN(to.output, uploader.Copy(weights.output, "lm_head of EAGLE"));
  }
  return to;
}

}  // namespace tandem
