// The memory under a ring: a sealed memfd that two processes map, or pages of one process.
#ifndef TANDEM_COMMON_RING_RING_MEMORY_H_
#define TANDEM_COMMON_RING_RING_MEMORY_H_

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"
#include "common/ring/unique_fd.h"

namespace tandem {

// Mapped, zero-filled, unmapped at the end. Pages are taken only as they are touched.
class RingMemory {
 public:
  // Verifier, `shm`: a memfd without a name, sealed against being resized (F_SEAL_SHRINK, _GROW,
  // _SEAL).
  static absl::StatusOr<RingMemory> CreateShared(size_t bytes);
  // Verifier, `inline`: memory of this process alone; fd() is -1.
  static absl::StatusOr<RingMemory> CreatePrivate(size_t bytes);
  // Drafter, `shm`: maps what it was handed. FAILED_PRECONDITION when it has another size, is no
  // memfd, or could shrink under the mapping (then a read would raise SIGBUS).
  static absl::StatusOr<RingMemory> MapShared(UniqueFd fd, size_t bytes);

  RingMemory(RingMemory&& other) noexcept
      : fd_(std::move(other.fd_)),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  RingMemory& operator=(RingMemory&&) = delete;
  ~RingMemory();

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
};

}  // namespace tandem

#endif  // TANDEM_COMMON_RING_RING_MEMORY_H_
