// Tells models of one name and one shape apart: a router must not move a stream between them.
#ifndef TANDEM_COMMON_MODEL_MODEL_FINGERPRINT_H_
#define TANDEM_COMMON_MODEL_MODEL_FINGERPRINT_H_

#include <string>

#include "common/model/model_description.h"
#include "common/model/model_weights.h"

namespace tandem {

// SHA-256, 32 bytes, over what a forward pass computes from: the sizes and constants of the config,
// and of each tensor its type, its shape and samples of it: 16 pieces of 4 KiB, spread evenly from
// its first byte to its last (all of a tensor that is no larger). Training changes numbers all over
// a tensor, so samples tell; reading all would take as long again as loading a model does. A change
// of a few rows of a large tensor alone (embeddings of added tokens) is not seen. How tensors are spread over files does not count.
std::string FingerprintModel(const ModelWeights& weights, const ModelDescription& model);

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_MODEL_FINGERPRINT_H_
