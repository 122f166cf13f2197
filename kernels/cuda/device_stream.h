// A stream and an event of the device, each owned by one object.
#ifndef TANDEM_KERNELS_CUDA_DEVICE_STREAM_H_
#define TANDEM_KERNELS_CUDA_DEVICE_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/ipc.h"
#include "kernels/cuda/stream.h"

struct CUevent_st;

namespace tandem {

// Work that is done in the order in which it was enqueued. Move-only; its end waits for what is on
// it.
class DeviceStream {
 public:
  static absl::StatusOr<DeviceStream> Create();
  DeviceStream() = default;
  ~DeviceStream();
  DeviceStream(DeviceStream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  DeviceStream& operator=(DeviceStream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }

  CudaStream get() const { return stream_; }

  // Either memory may be of the host or of the device; of the host it must stay as it is until the
  // stream got there.
  absl::Status Copy(void* to, const void* from, size_t bytes) const;
  absl::Status Clear(void* memory, size_t bytes) const;
  // Sets the first `width` bytes of `height` rows, `pitch` bytes apart, to `value`.
  absl::Status FillRows(void* memory, size_t pitch, uint8_t value, size_t width,
                        size_t height) const;
  // Waits until all that was enqueued is done. INTERNAL: a kernel failed, and the device's context
  // with it.
  absl::Status Wait() const;

 private:
  CudaStream stream_ = nullptr;
};

// A point on a stream that others may wait for. Move-only.
class DeviceEvent {
 public:
  // timed: for SecondsSince, at the cost of slower records.
  static absl::StatusOr<DeviceEvent> Create(bool timed = false);
  // One that other processes of the same GPU may open; Handle() names it.
  static absl::StatusOr<DeviceEvent> CreateShared();
  static absl::StatusOr<DeviceEvent> OpenShared(const IpcHandle& handle);
  DeviceEvent() = default;
  ~DeviceEvent();
  DeviceEvent(DeviceEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  DeviceEvent& operator=(DeviceEvent&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }

  absl::Status Record(const DeviceStream& stream) const;
  // What is enqueued on `stream` from now on waits for the last Record; without one, for nothing.
  absl::Status HoldUp(const DeviceStream& stream) const;
  // Waits until the last Record was reached; without one, not at all.
  absl::Status Wait() const;
  // Whether the last Record was reached. Does not wait.
  absl::StatusOr<bool> IsReached() const;
  // PRECOND: made by CreateShared.
  absl::StatusOr<IpcHandle> Handle() const;
  // From the moment that `earlier` was reached to that of this one. PRECOND: both are timed, and
  // have been.
  absl::StatusOr<double> SecondsSince(const DeviceEvent& earlier) const;

 private:
  static absl::StatusOr<DeviceEvent> CreateWith(unsigned flags);

  CUevent_st* event_ = nullptr;
};

// Memory of the host that the device copies from and to without the processor. Move-only. Must
// outlive what is on any stream that uses it.
class PinnedMemory {
 public:
  // RESOURCE_EXHAUSTED: the host has none that may be pinned.
  static absl::StatusOr<PinnedMemory> Create(size_t bytes);
  PinnedMemory() = default;
  ~PinnedMemory();
  PinnedMemory(PinnedMemory&& other) noexcept { *this = std::move(other); }
  PinnedMemory& operator=(PinnedMemory&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(size_, other.size_);
    return *this;
  }

  void* data() const { return memory_; }
  size_t size() const { return size_; }

 private:
  void* memory_ = nullptr;
  size_t size_ = 0;
};

// Memory of the host that somebody else owns, pinned for as long as this lives: which must end
// before the memory does. Move-only.
class PinnedRange {
 public:
  // RESOURCE_EXHAUSTED, INTERNAL: it cannot be pinned.
  static absl::StatusOr<PinnedRange> Create(void* memory, size_t bytes);
  PinnedRange() = default;
  ~PinnedRange();
  PinnedRange(PinnedRange&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)) {}
  PinnedRange& operator=(PinnedRange&& other) noexcept {
    std::swap(memory_, other.memory_);
    return *this;
  }

 private:
  void* memory_ = nullptr;
};

}  // namespace tandem

#endif  // TANDEM_KERNELS_CUDA_DEVICE_STREAM_H_
