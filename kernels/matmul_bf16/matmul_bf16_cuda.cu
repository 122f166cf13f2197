#include "kernels/matmul_bf16/matmul_bf16_cuda.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "kernels/matmul_bf16/forms.cuh"
#include "kernels/matmul_bf16/rows.h"

namespace tandem {
namespace {

bool IsAlignedTo16(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

absl::Status CheckOperands(const MatMulArgs& args) {
  const Bf16Rows& x = args.x_bf16;
  if (x.parts == nullptr || !IsAlignedTo16(x.parts) || x.stride % 8 != 0 ||
      x.part_stride % 8 != 0 || (x.num_parts != 1 && x.num_parts != kMostBf16Parts)) {
    return absl::InvalidArgumentError(
        absl::StrCat("MatMul on a GPU: BF16 weights need x_bf16 in 1 or ", kMostBf16Parts,
                     " parts (given: ", x.num_parts, "), at a multiple of 16 bytes, with strides ",
                     x.stride, " and ", x.part_stride, " (multiples of 8)"));
  }
  if (args.in_features % 8 != 0 || !IsAlignedTo16(args.w)) {
    return absl::InvalidArgumentError(
        absl::StrCat("MatMul on a GPU: in_features ", args.in_features,
                     " (a multiple of 8), w at a multiple of 16 bytes"));
  }
  return absl::OkStatus();
}

template <typename Form>
absl::Status Compute(const Form& form, CudaStream stream) {
  const MatMulArgs& product = form.product;
  if (product.rows == 0 || product.out_features == 0) return absl::OkStatus();
  if (absl::Status status = CheckOperands(product); !status.ok()) return status;
  return bf16_product::MatMulRows(form, stream);
}

}  // namespace

absl::Status MatMulBf16(const MatMulArgs& args, CudaStream stream) {
  return Compute(bf16_product::PlainForm{args}, stream);
}

absl::Status MatMulSwiGlu(const MatMulArgs& gate_up, const Bf16Rows& out, CudaStream stream) {
  return Compute(bf16_product::GateForm{gate_up, out}, stream);
}

absl::Status MatMulRopeAndStoreKv(const MatMulArgs& qkv, const DeviceRopeAndStoreArgs& rope,
                                  CudaStream stream) {
  return Compute(bf16_product::RopeForm{qkv, rope}, stream);
}

}  // namespace tandem
