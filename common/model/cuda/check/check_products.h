// Checks the products with BF16 weights on a GPU.
#ifndef TANDEM_COMMON_MODEL_CUDA_CHECK_CHECK_PRODUCTS_H_
#define TANDEM_COMMON_MODEL_CUDA_CHECK_CHECK_PRODUCTS_H_

#include <cstddef>

#include "absl/status/status.h"
#include "common/model/cuda/check/check_memory.h"
#include "common/model/cuda/check/device_check.h"

namespace tandem {

// Returns the bytes of device memory that CheckProducts takes.
size_t BytesToCheckProducts(const KernelSettings& settings);

// The kernel for many rows must give rows the bits of the kernel for few rows, in tiles of each
// kind, and these must be near the host's. The products that end with the gate or with RoPE must
// have the bits of the two steps. Errors are those of CheckDevice.
absl::Status CheckProducts(const DeviceInfo& device, const KernelSettings& settings,
                           CheckMemory& memory);

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CUDA_CHECK_CHECK_PRODUCTS_H_
