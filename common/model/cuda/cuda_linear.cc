#include "common/model/cuda/cuda_linear.h"

#include "kernels/matmul.h"

namespace tandem {

absl::Status MultiplyRows(const CudaLinear& linear, const ProductRows& x, size_t count,
                          const ProductOutput& out, CudaStream stream) {
  return MatMul({.x = x.floats,
                 .x_stride = x.floats_stride,
                 .rows = count,
                 .w = linear.weight,
                 .dtype = linear.dtype,
                 .out_features = linear.out_features,
                 .in_features = linear.in_features,
                 .bias = linear.bias,
                 .out = out.data,
                 .out_stride = out.stride,
                 .add_to_out = out.is_added,
                 .x_bf16 = x.For(linear.dtype)},
                stream);
}

}  // namespace tandem
