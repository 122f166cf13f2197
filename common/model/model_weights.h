// The weights of a decoder. Matrices stay in place in the mapped files. Norms and biases are copied
// as F32.
#ifndef TANDEM_COMMON_MODEL_MODEL_WEIGHTS_H_
#define TANDEM_COMMON_MODEL_MODEL_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/checkpoint/checkpoint.h"
#include "common/model/linear.h"
#include "common/model/model_description.h"

namespace tandem {

struct LayerWeights {
  std::vector<float> attention_norm;  // [hidden]
  Linear query;                       // hidden -> heads * head_size
  Linear key;                         // hidden -> KV heads * head_size
  Linear value;
  std::vector<float> query_norm;  // [head_size], the same for each head; empty without head norms
  std::vector<float> key_norm;    // [head_size], the same for each head; empty without head norms
  Linear attention_output;        // heads * head_size -> hidden
  std::vector<float> mlp_norm;    // [hidden]
  Linear gate;                    // hidden -> inner
  Linear up;
  Linear down;  // inner -> hidden

  // Returns the bytes that a pass reads of the matrices.
  uint64_t bytes() const;
};

class TensorLoader;

// Reads the tensors of a layer, whose names begin with `prefix`. `has_attention_norm` false: the
// layer has no norm before its attention. Queries, keys and values are products of
// `attention_inputs` rows of the size `hidden` side by side. Errors name the file and the tensor.
absl::StatusOr<LayerWeights> LoadLayerWeights(const TensorLoader& loader,
                                              const ModelDescription& model,
                                              const std::string& prefix, bool has_attention_norm,
                                              size_t attention_inputs = 1);

struct ModelWeights {
  Linear embedding;  // rows are looked up; no bias
  std::vector<LayerWeights> layers;
  std::vector<float> final_norm;  // [hidden]
  Linear output;                  // hidden -> vocabulary; equals `embedding` if they are tied

  // Returns the bytes that a pass of one row with logits reads of the matrices.
  uint64_t pass_bytes() const;

  // Reads the tensors that `model` has, by their Hugging Face names. Checks the type and the shape
  // of each tensor. Errors name the file and the tensor. `checkpoint` must outlive the weights.
  static absl::StatusOr<ModelWeights> Load(const Checkpoint& checkpoint,
                                           const ModelDescription& model);
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_MODEL_WEIGHTS_H_
