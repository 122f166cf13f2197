// Device memory and events that two processes share (CUDA C++ Programming Guide, "Interprocess
// Communication"). Both must use one GPU, in one PID namespace; opening takes about a millisecond,
// and closing waits for the device. Who exported memory must keep it until every importer has closed
// it or is gone.
#ifndef TANDEM_KERNELS_CUDA_IPC_H_
#define TANDEM_KERNELS_CUDA_IPC_H_

#include <array>
#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

// Of memory or of an event. Plain bytes: they may go through a socket or shared memory.
using IpcHandle = std::array<std::byte, 64>;

// Memory of this process that others may open. Move-only; freed at the end.
class ExportedMemory {
 public:
  // Handles are of whole allocations, which the driver makes of pieces of 2 MiB: so many are taken.
  static constexpr size_t kGranularity = size_t{2} << 20;

  // RESOURCE_EXHAUSTED: the device has less free. Other errors: the device cannot share memory.
  static absl::StatusOr<ExportedMemory> Create(size_t bytes);
  ExportedMemory() = default;
  ~ExportedMemory();
  ExportedMemory(ExportedMemory&& other) noexcept { *this = std::move(other); }
  ExportedMemory& operator=(ExportedMemory&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(handle_, other.handle_);
    return *this;
  }

  void* data() const { return memory_; }
  const IpcHandle& handle() const { return handle_; }

 private:
  void* memory_ = nullptr;
  IpcHandle handle_ = {};
};

// Memory of another process, mapped here. Move-only; closed at the end.
class ImportedMemory {
 public:
  // An error: the handle is of another GPU, of another PID namespace, of this very process, or of
  // memory that is gone.
  static absl::StatusOr<ImportedMemory> Open(const IpcHandle& handle);
  ImportedMemory() = default;
  ~ImportedMemory();
  ImportedMemory(ImportedMemory&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)) {}
  ImportedMemory& operator=(ImportedMemory&& other) noexcept {
    std::swap(memory_, other.memory_);
    return *this;
  }

  void* data() const { return memory_; }

 private:
  void* memory_ = nullptr;
};

}  // namespace tandem

#endif  // TANDEM_KERNELS_CUDA_IPC_H_
