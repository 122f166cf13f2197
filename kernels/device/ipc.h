// Device memory and events that two processes share (CUDA C++ Programming Guide, "Interprocess
// Communication"). Both must use one GPU, in one PID namespace. Opening takes about a millisecond,
// and closing waits for the device. The exporter must keep the memory until every importer has
// closed it or is gone.
#ifndef TANDEM_KERNELS_DEVICE_IPC_H_
#define TANDEM_KERNELS_DEVICE_IPC_H_

#include <array>
#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

// Names memory or an event. A handle is plain bytes that may go through a socket or shared memory.
using IpcHandle = std::array<std::byte, 64>;

// Memory of this process that other processes may open. The destructor frees it. Move-only.
class ExportedMemory {
 public:
  // A handle names a whole allocation, and the driver allocates in pieces of 2 MiB. Sizes are
  // rounded up to a multiple of this.
  static constexpr size_t kGranularity = size_t{2} << 20;

  // RESOURCE_EXHAUSTED: the device has less free. Any other error: the device cannot share memory.
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

// Memory of another process, mapped here. The destructor closes it. Move-only.
class ImportedMemory {
 public:
  // Fails if the handle is of another GPU, of another PID namespace, of this very process, or of
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

#endif  // TANDEM_KERNELS_DEVICE_IPC_H_
