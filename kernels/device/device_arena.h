// A worker's device memory. It is taken once and divided at start, so that nothing grows later and
// nothing can run out while the worker serves.
#ifndef TANDEM_KERNELS_DEVICE_DEVICE_ARENA_H_
#define TANDEM_KERNELS_DEVICE_DEVICE_ARENA_H_

#include <cstddef>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

// Owns one allocation. Its destructor frees the memory, which waits for the device. Move-only, not
// thread-safe.
class DeviceArena {
 public:
  // Every piece begins at a multiple of this number of bytes. Vector loads need it.
  static constexpr size_t kAlignment = 256;
  // Returns the bytes of the arena that a piece of `bytes` takes.
  static constexpr size_t Rounded(size_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  // RESOURCE_EXHAUSTED: the device has less than `bytes` free. The message says how much is free.
  static absl::StatusOr<DeviceArena> Create(size_t bytes);

  DeviceArena() = default;
  ~DeviceArena();
  DeviceArena(DeviceArena&& other) noexcept { *this = std::move(other); }
  DeviceArena& operator=(DeviceArena&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(size_, other.size_);
    std::swap(used_, other.used_);
    return *this;
  }

  size_t size() const { return size_; }
  size_t used() const { return used_; }

  // Returns an uninitialized piece for `count` values, which lives as long as the arena.
  // RESOURCE_EXHAUSTED: too little is left. The message names `what`, its size, and the size that
  // is left.
  template <typename T>
  absl::StatusOr<T*> Take(size_t count, std::string_view what) {
    absl::StatusOr<void*> memory = TakeBytes(count, sizeof(T), what);
    if (!memory.ok()) return memory.status();
    return static_cast<T*>(*memory);
  }

 private:
  absl::StatusOr<void*> TakeBytes(size_t count, size_t size, std::string_view what);

  void* memory_ = nullptr;
  size_t size_ = 0;
  size_t used_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_KERNELS_DEVICE_DEVICE_ARENA_H_
