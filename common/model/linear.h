// A matrix product of a model, with its weights.
#ifndef TANDEM_COMMON_MODEL_LINEAR_H_
#define TANDEM_COMMON_MODEL_LINEAR_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/dtype.h"
#include "kernels/matmul.h"

namespace tandem {

// out = x · Wᵀ + bias
struct Linear {
  const void* weight = nullptr;  // [out_features, in_features]
  DType dtype = DType::kBF16;
  size_t out_features = 0;
  size_t in_features = 0;
  std::vector<float> bias;  // [out_features], or empty

  // Returns the bytes that a product reads of the weights.
  uint64_t bytes() const { return uint64_t{out_features} * in_features * SizeOf(dtype); }
  // Returns the product of rows on the host, which must outlive it, as must this object.
  //   x    [rows, in_features]   f32, rows x_stride floats apart
  //   out  [rows, out_features]  f32, rows out_stride floats apart
  MatMulArgs Product(const float* x, size_t x_stride, size_t rows, float* out,
                     size_t out_stride) const {
    return {.x = x,
            .x_stride = x_stride,
            .rows = rows,
            .w = weight,
            .dtype = dtype,
            .out_features = out_features,
            .in_features = in_features,
            .bias = bias.empty() ? nullptr : bias.data(),
            .out = out,
            .out_stride = out_stride,
            .add_to_out = false};
  }
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_LINEAR_H_
