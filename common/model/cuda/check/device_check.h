// Checks on a GPU that its kernels compute what they should. Code that is right on one kind of GPU
// may be compiled or timed differently on another one, and a worker must not serve what a wrong
// kernel computes.
#ifndef TANDEM_COMMON_MODEL_CUDA_CHECK_DEVICE_CHECK_H_
#define TANDEM_COMMON_MODEL_CUDA_CHECK_DEVICE_CHECK_H_

#include <cstddef>

#include "absl/status/status.h"
#include "kernels/device/device.h"
#include "kernels/device/device_stream.h"
#include "kernels/dtype.h"

namespace tandem {

// What decides which kernels a model runs, and how.
struct KernelSettings {
  size_t head_size = 0;
  size_t heads_per_kv_head = 0;
  DType weights = DType::kBF16;  // those of products
  DType pages = DType::kBF16;
  int num_parts = 1;  // BF16 parts of an activation before BF16 weights
};

// Computes small random cases with the kernels of these settings, in device memory of its own: with
// BF16 weights products and what follows them in a layer, and always attention over chains and a
// tree. Rows that are computed together must have the bits of rows that are computed by few, and
// the results must be those of the host's plain loops, to rounding. Waits for the stream. `device`
// is the current device.
//   FAILED_PRECONDITION  a result is wrong. The message is for the operator.
//   INTERNAL             a kernel was refused or failed.
//   RESOURCE_EXHAUSTED   there is no memory for the check.
absl::Status CheckDevice(const DeviceInfo& device, const KernelSettings& settings,
                         const DeviceStream& stream);

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CUDA_CHECK_DEVICE_CHECK_H_
