// Starting a kernel.
#ifndef TANDEM_KERNELS_CUDA_LAUNCH_H_
#define TANDEM_KERNELS_CUDA_LAUNCH_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <string_view>
#include <type_traits>

#include "absl/status/status.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/stream.h"

namespace tandem {

struct LaunchShape {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;  // dynamic; over 48 KiB needs AllowSharedMemory
};

// Enqueues `kernel`; what it was called with has been copied on return. INTERNAL when the launch is
// refused; what goes wrong in the kernel comes up at a later call.
template <typename... Parameters>
absl::Status Launch(std::string_view name, void (*kernel)(Parameters...), const LaunchShape& shape,
                    CudaStream stream, std::type_identity_t<Parameters>... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  return CudaStatus(cudaLaunchKernelEx(&config, kernel, arguments...), name);
}

// Lets a kernel have so many bytes of dynamic shared memory, up to what the device has (227 KiB on
// compute capability 9.0, 163 on 8.0, 99 on 8.6). Once a process and kernel.
template <typename... Parameters>
absl::Status AllowSharedMemory(void (*kernel)(Parameters...), size_t bytes) {
  return CudaStatus(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(bytes)),
                    "cudaFuncSetAttribute");
}

}  // namespace tandem

#endif  // TANDEM_KERNELS_CUDA_LAUNCH_H_
