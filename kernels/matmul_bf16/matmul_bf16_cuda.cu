#include "kernels/matmul_bf16/matmul_bf16_cuda.h"

#include "kernels/matmul_bf16/forms.cuh"
#include "kernels/matmul_bf16/rows.h"

namespace tandem {

absl::Status MatMulBf16(const MatMulArgs& args, CudaStream stream) {
  return bf16_product::MatMulRows(bf16_product::PlainForm{args}, stream);
}

}  // namespace tandem
