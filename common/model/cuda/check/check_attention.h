// Checks attention on a GPU.
#ifndef TANDEM_COMMON_MODEL_CUDA_CHECK_CHECK_ATTENTION_H_
#define TANDEM_COMMON_MODEL_CUDA_CHECK_CHECK_ATTENTION_H_

#include <cstddef>

#include "absl/status/status.h"
#include "common/model/cuda/check/check_memory.h"
#include "common/model/cuda/check/device_check.h"

namespace tandem {

// Returns the bytes of device memory that CheckAttention takes.
size_t BytesToCheckAttention(const KernelSettings& settings);

// The rows of a chain that are computed together must have the bits of rows that are computed
// alone and sixteen at once, and must be near the host's. The rows of a tree must have the bits of
// the chains of their paths. Errors are those of CheckDevice.
absl::Status CheckAttention(const KernelSettings& settings, CheckMemory& memory);

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CUDA_CHECK_CHECK_ATTENTION_H_
