// Rows of a ring that lie in device memory, as each end sees them. The control page and the entries
// are still host memory that both processes map. They decide, and the device only keeps the order.
// common/ring/cuda implements this over CUDA IPC.
#ifndef TANDEM_COMMON_RING_RING_ROWS_H_
#define TANDEM_COMMON_RING_RING_ROWS_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ring/ring_layout.h"

namespace tandem {

// A handle that opens a piece of device memory, or an event, in another process.
using RingHandle = std::array<std::byte, kRingHandleBytes>;

// The verifier's end, which owns the memory. Used by one thread.
class RingRows {
 public:
  virtual ~RingRows() = default;

  // Handles for the drafter: first that of the memory, then that of each entry's event.
  virtual std::span<const RingHandle> handles() const = 0;
  // [rows_per_entry, vocabulary_size] f32 in device memory.
  virtual float* rows(uint32_t entry) const = 0;
  // Returns the number in the place of the nonce. It is ~nonce if the drafter's writes arrive.
  virtual absl::StatusOr<uint64_t> ReadEcho() = 0;
  // Waits until the drafter's last writes to the entry are done, but not after the deadline,
  // because a dead drafter would hold up the device forever. PRECOND: the drafter has said that it
  // recorded them.
  virtual absl::Status AwaitReady(uint32_t entry,
                                  std::chrono::steady_clock::time_point deadline) = 0;
};

// The drafter's end. The destructor closes the memory that was opened.
class OpenedRingRows {
 public:
  virtual ~OpenedRingRows() = default;

  virtual float* rows(uint32_t entry) const = 0;
  // Replaces the nonce by its complement. FAILED_PRECONDITION: another number is in its place, so
  // this is other memory, and nothing is written.
  virtual absl::Status EchoNonce(uint64_t nonce) = 0;
  // Records the event of the entry after the enqueued work that writes its rows. Called before the
  // verifier is told, because a wait for an event that was never recorded does not wait.
  virtual absl::Status RecordReady(uint32_t entry) = 0;
};

using CreateRingRows = std::function<absl::StatusOr<std::unique_ptr<RingRows>>(
    const RingGeometry& geometry, uint64_t nonce)>;
using OpenRingRows = std::function<absl::StatusOr<std::unique_ptr<OpenedRingRows>>(
    const RingGeometry& geometry, std::span<const RingHandle> handles)>;

}  // namespace tandem

#endif  // TANDEM_COMMON_RING_RING_ROWS_H_
