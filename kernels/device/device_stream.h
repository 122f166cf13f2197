// Streams and events of a device, and pinned memory of the host. One object owns each.
#ifndef TANDEM_KERNELS_DEVICE_DEVICE_STREAM_H_
#define TANDEM_KERNELS_DEVICE_DEVICE_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device/ipc.h"
#include "kernels/device/stream.h"

struct CUevent_st;

namespace tandem {

// A queue of work that is done in the order in which it was enqueued. Its destructor waits for the
// work. Move-only.
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

  // `to` and `from` may each be memory of the host or of the device. Memory of the host must not
  // change until the stream has reached the copy.
  absl::Status Copy(void* to, const void* from, size_t bytes) const;
  absl::Status Clear(void* memory, size_t bytes) const;
  // Sets the first `width` bytes of `height` rows, `pitch` bytes apart, to `value`.
  absl::Status FillRows(void* memory, size_t pitch, uint8_t value, size_t width,
                        size_t height) const;
  // Copies the first `width` bytes of `height` rows, which are `pitch` bytes apart on both sides.
  // The copied bytes must not overlap.
  absl::Status CopyRows(void* to, const void* from, size_t pitch, size_t width,
                        size_t height) const;
  // Waits until all enqueued work is done. INTERNAL: a kernel failed, and the device's context is
  // lost.
  absl::Status Wait() const;

 private:
  CudaStream stream_ = nullptr;
};

// A point on a stream that the host may wait for. Move-only.
class DeviceEvent {
 public:
  // A timed event may be used with SecondsSince, and its records are slower.
  static absl::StatusOr<DeviceEvent> Create(bool timed = false);
  // Creates an event that other processes of the same GPU may open by its Handle().
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
  // Waits until the last Record is reached. Returns at once if there was none.
  absl::Status Wait() const;
  // Returns whether the last Record has been reached. Does not wait.
  absl::StatusOr<bool> IsReached() const;
  // PRECOND: the event was made by CreateShared.
  absl::StatusOr<IpcHandle> Handle() const;
  // Returns the time from reaching `earlier` to reaching this event. PRECOND: both are timed and
  // have been reached.
  absl::StatusOr<double> SecondsSince(const DeviceEvent& earlier) const;

 private:
  static absl::StatusOr<DeviceEvent> CreateWith(unsigned flags);

  CUevent_st* event_ = nullptr;
};

// Memory of the host that the device can copy from and to without the processor. It must outlive
// the work on any stream that uses it. Move-only.
class PinnedMemory {
 public:
  // RESOURCE_EXHAUSTED: the host has no memory that may be pinned.
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

// Pins memory of the host that somebody else owns, for the lifetime of this object. The object must
// be destroyed before the memory. Move-only.
class PinnedRange {
 public:
  // RESOURCE_EXHAUSTED, INTERNAL: the memory cannot be pinned.
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

#endif  // TANDEM_KERNELS_DEVICE_DEVICE_STREAM_H_
