#include "kernels/device/ipc.h"

#include <cuda_runtime.h>

#include <bit>

#include "absl/strings/str_cat.h"
#include "kernels/device/cuda_status.h"

namespace tandem {

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(IpcHandle));

absl::StatusOr<ExportedMemory> ExportedMemory::Create(size_t bytes) {
  const size_t rounded = (bytes + kGranularity - 1) / kGranularity * kGranularity;
  ExportedMemory memory;
  if (absl::Status status = CudaStatus(cudaMalloc(&memory.memory_, rounded),
                                       absl::StrCat("cudaMalloc of ", rounded, " bytes"));
      !status.ok()) {
    return status;
  }
  cudaIpcMemHandle_t handle;
  if (absl::Status status =
          CudaStatus(cudaIpcGetMemHandle(&handle, memory.memory_), "cudaIpcGetMemHandle");
      !status.ok()) {
    return status;
  }
  memory.handle_ = std::bit_cast<IpcHandle>(handle);
  return memory;
}

ExportedMemory::~ExportedMemory() {
  if (memory_ != nullptr) static_cast<void>(CudaStatus(cudaFree(memory_), "cudaFree"));
}

absl::StatusOr<ImportedMemory> ImportedMemory::Open(const IpcHandle& handle) {
  ImportedMemory memory;
  if (absl::Status status = CudaStatus(
          cudaIpcOpenMemHandle(&memory.memory_, std::bit_cast<cudaIpcMemHandle_t>(handle),
                               cudaIpcMemLazyEnablePeerAccess),
          "cudaIpcOpenMemHandle");
      !status.ok()) {
    memory.memory_ = nullptr;
    return status;
  }
  return memory;
}

ImportedMemory::~ImportedMemory() {
  if (memory_ != nullptr) {
    static_cast<void>(CudaStatus(cudaIpcCloseMemHandle(memory_), "cudaIpcCloseMemHandle"));
  }
}

}  // namespace tandem
