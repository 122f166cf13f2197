#include "kernels/device/device.h"

#include <cuda_runtime.h>

#include <atomic>

#include "absl/strings/str_cat.h"
#include "kernels/device/cuda_status.h"

namespace tandem {
namespace {

std::atomic<int> capability = 0;
std::atomic<int> num_multiprocessors = 40;
std::atomic<size_t> max_shared_bytes = size_t{99} << 10;

std::string Version(int number) { return absl::StrCat(number / 1000, ".", number % 1000 / 10); }

}  // namespace

absl::StatusOr<DeviceInfo> UseDevice(int index) {
  DeviceInfo info;
  info.index = index;
  if (absl::Status status =
          CudaStatus(cudaDriverGetVersion(&info.driver_version), "cudaDriverGetVersion");
      !status.ok())
    return status;
  if (absl::Status status =
          CudaStatus(cudaRuntimeGetVersion(&info.runtime_version), "cudaRuntimeGetVersion");
      !status.ok()) {
    return status;
  }
  if (info.driver_version == 0)
    return absl::FailedPreconditionError("no NVIDIA driver is installed");
  if (info.driver_version / 1000 < info.runtime_version / 1000) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the NVIDIA driver knows CUDA ", Version(info.driver_version), ", but this build needs ",
        Version(info.runtime_version / 1000 * 1000), " or newer"));
  }
  int count = 0;
  if (absl::Status status = CudaStatus(cudaGetDeviceCount(&count), "looking for a GPU");
      !status.ok())
    return status;
  if (index < 0 || index >= count) {
    return absl::FailedPreconditionError(
        absl::StrCat("there is no GPU ", index, ": this machine has ", count));
  }
  cudaDeviceProp properties;
  if (absl::Status status =
          CudaStatus(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
      !status.ok()) {
    return status;
  }
  info.name = properties.name;
  for (const char byte : properties.uuid.bytes) {
    absl::StrAppend(&info.uuid, absl::Hex(static_cast<uint8_t>(byte), absl::kZeroPad2));
  }
  info.capability = 10 * properties.major + properties.minor;
  info.num_multiprocessors = properties.multiProcessorCount;
  info.memory_bytes = properties.totalGlobalMem;
  info.max_shared_bytes = properties.sharedMemPerBlockOptin;
  capability = info.capability;
  num_multiprocessors = info.num_multiprocessors;
  max_shared_bytes = info.max_shared_bytes;
  if (info.capability < kOldestCapability) {
    return absl::FailedPreconditionError(absl::StrCat(
        info.name, " has compute capability ", properties.major, ".", properties.minor,
        ", but the kernels need ", kOldestCapability / 10, ".", kOldestCapability % 10));
  }
  if (absl::Status status = CudaStatus(cudaSetDevice(index), "cudaSetDevice"); !status.ok())
    return status;
  return info;
}

absl::Status SelectDevice(int index) {
  return CudaStatus(cudaSetDevice(index), absl::StrCat("cudaSetDevice ", index));
}

bool IsDeviceLost(int index) {
  absl::Status status = SelectDevice(index);
  if (status.ok()) status = CudaStatus(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  // A call that failed for lack of memory says nothing about the context.
  return !status.ok() && !absl::IsResourceExhausted(status);
}

int DeviceCapability() { return capability; }

BlockLimits DeviceBlockLimits() {
  return {.num_multiprocessors = num_multiprocessors, .max_shared_bytes = max_shared_bytes};
}

}  // namespace tandem
