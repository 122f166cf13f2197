// Starts kernels.
#ifndef TANDEM_KERNELS_DEVICE_LAUNCH_H_
#define TANDEM_KERNELS_DEVICE_LAUNCH_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <string_view>
#include <type_traits>

#include "absl/status/status.h"
#include "kernels/device/cuda_status.h"
#include "kernels/device/device.h"
#include "kernels/device/stream.h"

namespace tandem {

struct LaunchShape {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;  // dynamic shared memory; more than 48 KiB needs AllowSharedMemory
  // The kernel may start before the stream's earlier kernels have ended. Its threads call
  // WaitForEarlierKernels before they touch anything that those kernels read or write. GPUs older
  // than Hopper take no notice.
  bool starts_early = false;
};

// Returns whether the code that a GPU of this capability runs contains the wait of
// WaitForEarlierKernels. A GPU may run code that was compiled for an older one.
constexpr bool WaitsForEarlierKernels([[maybe_unused]] int capability) {
#ifdef __CUDA_ARCH_LIST__
  constexpr int kFirstWithWait = 90;
  for (const int compiled : {__CUDA_ARCH_LIST__}) {
    if (compiled / 10 >= kFirstWithWait && compiled / 10 <= capability) return true;
  }
#endif
  return false;
}

// Enqueues `kernel`. Its arguments have been copied when the call returns. INTERNAL: the launch was
// refused. A later call reports an error of the kernel itself.
template <typename... Parameters>
absl::Status Launch(std::string_view name, void (*kernel)(Parameters...), const LaunchShape& shape,
                    CudaStream stream, std::type_identity_t<Parameters>... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
#ifndef TANDEM_SIMT
  // Programmatic dependent launch (CUDA C++ Programming Guide, compute capability 9.0).
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  if (shape.starts_early && WaitsForEarlierKernels(DeviceCapability())) {
    config.attrs = &early;
    config.numAttrs = 1;
  }
#endif
  return CudaStatus(cudaLaunchKernelEx(&config, kernel, arguments...), name);
}

// Lets a kernel have `bytes` of dynamic shared memory, up to the size that the device has (227 KiB
// on compute capability 9.0, 163 KiB on 8.0, 99 KiB on 8.6). Cheap, and called before each launch.
template <typename... Parameters>
absl::Status AllowSharedMemory(void (*kernel)(Parameters...), size_t bytes) {
  return CudaStatus(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(bytes)),
                    "cudaFuncSetAttribute");
}

}  // namespace tandem

#endif  // TANDEM_KERNELS_DEVICE_LAUNCH_H_
