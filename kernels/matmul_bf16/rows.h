// The two kernels of a product with BF16 weights. Both give a row the same bits.
#ifndef TANDEM_KERNELS_MATMUL_BF16_ROWS_H_
#define TANDEM_KERNELS_MATMUL_BF16_ROWS_H_

#include <cstddef>

#include "absl/status/status.h"
#include "kernels/device/stream.h"

namespace tandem::bf16_product {

inline constexpr size_t kMostOfFewRows = 64;

// Computes the product of a form (forms.cuh) and finishes it, for any number of rows
// (few_rows_cuda.cu). It is fast for up to kMostOfFewRows rows.
template <typename Form>
absl::Status MatMulFewRows(const Form& form, CudaStream stream);

// The same (many_rows_cuda.cu), fast for more rows.
template <typename Form>
absl::Status MatMulManyRows(const Form& form, CudaStream stream);

template <typename Form>
absl::Status MatMulRows(const Form& form, CudaStream stream) {
  return form.product.rows <= kMostOfFewRows ? MatMulFewRows(form, stream)
                                             : MatMulManyRows(form, stream);
}

}  // namespace tandem::bf16_product

#endif  // TANDEM_KERNELS_MATMUL_BF16_ROWS_H_
