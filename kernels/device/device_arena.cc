#include "kernels/device/device_arena.h"

#include <cuda_runtime.h>

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "kernels/device/cuda_status.h"

namespace tandem {

absl::StatusOr<DeviceArena> DeviceArena::Create(size_t bytes) {
  DeviceArena arena;
  if (bytes == 0) return arena;
  size_t free = 0;
  size_t total = 0;
  if (absl::Status status = CudaStatus(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
      !status.ok())
    return status;
  if (bytes > free) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "device memory: ", bytes, " bytes are wanted, and ", free, " of ", total, " are free"));
  }
  if (absl::Status status = CudaStatus(cudaMalloc(&arena.memory_, bytes),
                                       absl::StrCat("cudaMalloc of ", bytes, " bytes"));
      !status.ok()) {
    return status;
  }
  arena.size_ = bytes;
  return arena;
}

DeviceArena::~DeviceArena() {
  // A destructor cannot report an error. A device that is lost has lost this memory too.
  if (memory_ != nullptr) static_cast<void>(CudaStatus(cudaFree(memory_), "cudaFree"));
}

absl::StatusOr<void*> DeviceArena::TakeBytes(size_t count, size_t size, std::string_view what) {
  const size_t left = size_ - used_;
  const size_t most = left / size;
  if (count > most || Rounded(count * size) > left) {
    return absl::ResourceExhaustedError(
        absl::StrCat("device memory: ", absl::string_view(what.data(), what.size()), " takes ",
                     count, " x ", size, " bytes, and ", left, " of ", size_, " are left"));
  }
  void* const piece = static_cast<std::byte*>(memory_) + used_;
  used_ += Rounded(count * size);
  return piece;
}

}  // namespace tandem
