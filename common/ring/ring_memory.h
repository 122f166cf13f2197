// The memory under a ring: a sealed memfd that two processes map, or pages of one process.
#ifndef TANDEM_COMMON_RING_RING_MEMORY_H_
#define TANDEM_COMMON_RING_RING_MEMORY_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "common/ring/unique_fd.h"

namespace tandem {

// Lets a device copy from and to memory of the host without a detour, as long as the returned
// object lives. Returns null if the host refuses, which only costs speed.
using PinMemory = std::function<std::shared_ptr<void>(void* memory, size_t bytes)>;

// Zero-filled mapped memory. The destructor unmaps it. Pages are taken only when they are touched.
class RingMemory {
 public:
  // For the verifier and `shm`: a memfd without a name that is sealed against resizing
  // (F_SEAL_SHRINK, _GROW, _SEAL).
  static absl::StatusOr<RingMemory> CreateShared(size_t bytes);
  // For the verifier and `inline`: memory of this process only. fd() is -1.
  static absl::StatusOr<RingMemory> CreatePrivate(size_t bytes);
  // For the drafter and `shm`: maps a descriptor that it was handed. FAILED_PRECONDITION if the
  // descriptor has another size, is no memfd, or could shrink under the mapping (a read would then
  // raise SIGBUS).
  static absl::StatusOr<RingMemory> MapShared(UniqueFd fd, size_t bytes);

  RingMemory(RingMemory&& other) noexcept
      : fd_(std::move(other.fd_)),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        pinned_(std::move(other.pinned_)) {}
  RingMemory& operator=(RingMemory&&) = delete;
  ~RingMemory();

  // Takes all pages at once. Does nothing without `pin`.
  void Pin(const PinMemory& pin);

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  int fd() const { return fd_.get(); }

 private:
  RingMemory(UniqueFd fd, std::byte* data, size_t bytes)
      : fd_(std::move(fd)), data_(data), bytes_(bytes) {}
  static absl::StatusOr<RingMemory> Map(UniqueFd fd, size_t bytes);

  UniqueFd fd_;
  std::byte* data_;
  size_t bytes_;
  std::shared_ptr<void> pinned_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_RING_RING_MEMORY_H_
