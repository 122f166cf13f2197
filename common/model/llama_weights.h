// The weights of a Llama decoder: matrices in place in the mapped files, norms and biases as F32
// copies.
#ifndef TANDEM_COMMON_MODEL_LLAMA_WEIGHTS_H_
#define TANDEM_COMMON_MODEL_LLAMA_WEIGHTS_H_

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/checkpoint.h"
#include "common/model/model_config.h"
#include "kernels/dtype.h"

namespace tandem {

// out = x · Wᵀ + bias
struct Linear {
  const void* weight = nullptr;  // [out_features, in_features]
  DType dtype = DType::kBF16;
  size_t out_features = 0;
  size_t in_features = 0;
  std::vector<float> bias;  // [out_features], or empty
};

struct LlamaLayerWeights {
  std::vector<float> attention_norm;  // [hidden]
  Linear query;                       // hidden -> heads * head_size
  Linear key;                         // hidden -> KV heads * head_size
  Linear value;
  Linear attention_output;      // heads * head_size -> hidden
  std::vector<float> mlp_norm;  // [hidden]
  Linear gate;                  // hidden -> inner
  Linear up;
  Linear down;  // inner -> hidden
};

struct LlamaWeights {
  Linear embedding;  // rows are looked up; no bias
  std::vector<LlamaLayerWeights> layers;
  std::vector<float> final_norm;  // [hidden]
  Linear output;                  // hidden -> vocabulary; the embedding where they are tied

  // Checks type and shape of every tensor; errors name file and tensor. `checkpoint` must outlive
  // the weights.
  static absl::StatusOr<LlamaWeights> Load(const Checkpoint& checkpoint, const ModelConfig& config);
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_LLAMA_WEIGHTS_H_
