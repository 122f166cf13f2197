// A matrix product of a model, with its weights.
#ifndef TANDEM_COMMON_MODEL_LINEAR_H_
#define TANDEM_COMMON_MODEL_LINEAR_H_

#include <cstddef>
#include <vector>

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

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_LINEAR_H_
