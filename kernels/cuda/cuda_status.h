// Every call of CUDA's runtime goes through here.
#ifndef TANDEM_KERNELS_CUDA_CUDA_STATUS_H_
#define TANDEM_KERNELS_CUDA_CUDA_STATUS_H_

#include <cuda_runtime.h>

#include <string_view>

#include "absl/status/status.h"

namespace tandem {

// What a call returned, as a status: "cudaMalloc of 3.2 GB: out of memory
// (cudaErrorMemoryAllocation)".
//   RESOURCE_EXHAUSTED   no device memory
//   FAILED_PRECONDITION  no device, or a driver that is too old
//   INTERNAL             anything else; an error of a kernel comes up at a later call, and the
//                        device's context is lost with it
// Clears the runtime's memory of the error, so that the next launch is not blamed for it.
absl::Status CudaStatus(cudaError_t error, std::string_view call);

}  // namespace tandem

#endif  // TANDEM_KERNELS_CUDA_CUDA_STATUS_H_
