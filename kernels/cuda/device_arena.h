// A worker's device memory: taken once, cut up at start, so that nothing grows later and nothing
// can run out in the middle.
#ifndef TANDEM_KERNELS_CUDA_DEVICE_ARENA_H_
#define TANDEM_KERNELS_CUDA_DEVICE_ARENA_H_

#include <cstddef>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

// Move-only; frees its memory, which waits for the device. Not thread-safe.
class DeviceArena {
 public:
  // Every piece begins at a multiple of this: what vector loads and cuBLAS ask for.
  static constexpr size_t kAlignment = 256;
  // What a piece of so many bytes takes.
  static constexpr size_t Rounded(size_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  // RESOURCE_EXHAUSTED: the device has less than `bytes` free; the message says how much it has.
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

  // A piece for `count` values, uninitialised. It lives as long as the arena. RESOURCE_EXHAUSTED:
  // too little is left; the message says for what, how much it takes and how much is left.
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

#endif  // TANDEM_KERNELS_CUDA_DEVICE_ARENA_H_
