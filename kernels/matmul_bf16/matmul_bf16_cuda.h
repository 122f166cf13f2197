// Matrix products with BF16 weights on a GPU's matrix units, and what follows them in a layer.
#ifndef TANDEM_KERNELS_MATMUL_BF16_MATMUL_BF16_CUDA_H_
#define TANDEM_KERNELS_MATMUL_BF16_MATMUL_BF16_CUDA_H_

#include "absl/status/status.h"
#include "kernels/attention.h"
#include "kernels/device/bf16_rows.h"
#include "kernels/device/stream.h"
#include "kernels/matmul.h"

namespace tandem {

// All functions enqueue one kernel on `stream` and do not wait. Their results have the bits of the
// functions that they name, one after the other. PRECOND: the weights are BF16. INVALID_ARGUMENT
// and INTERNAL: as for MatMul on a GPU.

// Computes what MatMul on a GPU computes (kernels/matmul.h), and is called by it.
absl::Status MatMulBf16(const MatMulArgs& args, CudaStream stream);

// MatMul, and SwiGlu of its result (kernels/swiglu.h).
//   gate_up  the weights are those of the gate, and then those of up; `out` is not written
//   out      [rows, out_features / 2]  the gated rows in BF16 parts
// PRECOND: out_features is even.
absl::Status MatMulSwiGlu(const MatMulArgs& gate_up, const Bf16Rows& out, CudaStream stream);

// MatMul, and RopeAndStoreKv of its result (kernels/attention.h).
//   qkv   `out` is that of `rope`, and gets queries alone
//   rope  the pages are BF16
absl::Status MatMulRopeAndStoreKv(const MatMulArgs& qkv, const DeviceRopeAndStoreArgs& rope,
                                  CudaStream stream);

}  // namespace tandem

#endif  // TANDEM_KERNELS_MATMUL_BF16_MATMUL_BF16_CUDA_H_
