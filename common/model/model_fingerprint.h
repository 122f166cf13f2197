// Tells models with the same name and the same shape apart. A router must not move a stream between
// such models.
#ifndef TANDEM_COMMON_MODEL_MODEL_FINGERPRINT_H_
#define TANDEM_COMMON_MODEL_MODEL_FINGERPRINT_H_

#include <string>

#include "common/model/model_description.h"
#include "common/model/model_weights.h"

namespace tandem {

// Returns the SHA-256 (32 bytes) of the inputs of a forward pass: the sizes and constants of the
// config, and the type, the shape and samples of each tensor. The samples are 16 pieces of 4 KiB,
// spread evenly from the first byte to the last. A tensor that is not larger than all samples is
// read whole.
//
// Training changes numbers all over a tensor, so samples show the change. Reading all bytes would
// take the time of loading the model once more. A change of only a few rows of a large tensor, such
// as the embeddings of added tokens, is not seen. The way in which tensors are spread over files
// does not count.
std::string FingerprintModel(const ModelWeights& weights, const ModelDescription& model);

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_MODEL_FINGERPRINT_H_
