// A matrix product of a model on a device, with its weights and the rows that it takes.
#ifndef TANDEM_COMMON_MODEL_CUDA_CUDA_LINEAR_H_
#define TANDEM_COMMON_MODEL_CUDA_CUDA_LINEAR_H_

#include <cstddef>

#include "absl/status/status.h"
#include "common/model/cuda/memory_taker.h"
#include "kernels/device/bf16_rows.h"
#include "kernels/device/stream.h"
#include "kernels/dtype.h"
#include "kernels/matmul.h"

namespace tandem {

// Like Linear, with pointers into device memory.
struct CudaLinear {
  const void* weight = nullptr;  // [out_features, in_features]
  DType dtype = DType::kBF16;
  size_t out_features = 0;
  size_t in_features = 0;
  const float* bias = nullptr;  // [out_features]; null: none
};

// Rows that a product takes: in BF16 parts for BF16 weights, else as floats. Both have memory.
struct ProductRows {
  float* floats = nullptr;  // [rows, size]
  size_t floats_stride = 0;
  Bf16Rows bf16;  // the same shape

  // Returns bf16 if weights of this type take it, else nothing.
  Bf16Rows For(DType dtype) const { return dtype == DType::kBF16 ? bf16 : Bf16Rows(); }
  // Returns the same rows from a column on, which is a multiple of 8.
  ProductRows FromColumn(size_t column) const {
    ProductRows rest = {floats + column, floats_stride, bf16};
    rest.bf16.parts += column;
    return rest;
  }
  ProductRows FromRow(size_t row) const {
    return {floats + row * floats_stride, floats_stride, bf16.FromRow(row)};
  }
};

// Returns how many parts make an activation.
inline int NumBf16Parts(bool exact_activations) { return exact_activations ? kMostBf16Parts : 1; }

// Lays out `count` rows in BF16 parts.
absl::Status LayOutParts(Bf16Rows* rows, size_t count, size_t size, int num_parts, const char* what,
                         const MemoryTaker& take);
// Lays out `count` rows in both forms.
absl::Status LayOutRows(ProductRows* rows, size_t count, size_t size, int num_parts,
                        const char* what, const MemoryTaker& take);

// Where the rows of a product go.
struct ProductOutput {
  float* data = nullptr;  // [rows, out_features], rows `stride` floats apart
  size_t stride = 0;
  bool is_added = false;  // to what is there
};

// Returns the operands of the product of the first `count` rows of `x`.
MatMulArgs ProductArgs(const CudaLinear& linear, const ProductRows& x, size_t count,
                       const ProductOutput& out);

// Enqueues this product. Errors are those of MatMul.
absl::Status MultiplyRows(const CudaLinear& linear, const ProductRows& x, size_t count,
                          const ProductOutput& out, CudaStream stream);

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CUDA_CUDA_LINEAR_H_
