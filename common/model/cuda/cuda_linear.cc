#include "common/model/cuda/cuda_linear.h"

#include "common/status.h"

namespace tandem {

absl::Status LayOutParts(Bf16Rows* rows, size_t count, size_t size, int num_parts, const char* what,
                         const MemoryTaker& take) {
  constexpr size_t kOfLoad = 8;  // elements that a thread loads at once
  rows->num_parts = num_parts;
  rows->stride = (size + kOfLoad - 1) / kOfLoad * kOfLoad;
  rows->part_stride = count * rows->stride;
  return take(&rows->parts, static_cast<size_t>(num_parts) * rows->part_stride, what);
}

absl::Status LayOutRows(ProductRows* rows, size_t count, size_t size, int num_parts,
                        const char* what, const MemoryTaker& take) {
  rows->floats_stride = size;
  TANDEM_RETURN_IF_ERROR(take(&rows->floats, count * size, what));
  return LayOutParts(&rows->bf16, count, size, num_parts, what, take);
}

MatMulArgs ProductArgs(const CudaLinear& linear, const ProductRows& x, size_t count,
                       const ProductOutput& out) {
  return {.x = x.floats,
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
          .x_bf16 = x.For(linear.dtype)};
}

absl::Status MultiplyRows(const CudaLinear& linear, const ProductRows& x, size_t count,
                          const ProductOutput& out, CudaStream stream) {
  return MatMul(ProductArgs(linear, x, count, out), stream);
}

}  // namespace tandem
