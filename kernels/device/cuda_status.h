// The status of a call of CUDA's runtime. Every such call goes through here.
#ifndef TANDEM_KERNELS_DEVICE_CUDA_STATUS_H_
#define TANDEM_KERNELS_DEVICE_CUDA_STATUS_H_

#include <cuda_runtime.h>

#include <string_view>

#include "absl/status/status.h"

namespace tandem {

// Returns the result of a call as a status: "cudaMalloc of 3.2 GB: out of memory
// (cudaErrorMemoryAllocation)".
//   RESOURCE_EXHAUSTED   There is no device memory left.
//   FAILED_PRECONDITION  There is no device, or its driver is too old.
//   INTERNAL             Anything else. A later call reports the error of a kernel, and the context
//                        of the device is then lost.
// Also clears the error in the runtime, so that the next launch does not report the error again.
absl::Status CudaStatus(cudaError_t error, std::string_view call);

}  // namespace tandem

#endif  // TANDEM_KERNELS_DEVICE_CUDA_STATUS_H_
