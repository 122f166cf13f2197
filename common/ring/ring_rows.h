// Rows of a ring that lie in a device's memory, as each end sees them. The control page and the
// entries are host memory all the same, which both processes map: what is said there decides, the
// device only orders. common/ring/cuda implements this over CUDA IPC.
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

// What opens a piece of the device's memory, or an event, in another process.
using RingHandle = std::array<std::byte, kRingHandleBytes>;

// The verifier's end: owns the memory. Used by one thread.
class RingRows {
 public:
  virtual ~RingRows() = default;

  // For the drafter: of the memory, then of each entry's event.
  virtual std::span<const RingHandle> handles() const = 0;
  // [rows_per_entry, vocabulary_size] f32 in device memory.
  virtual float* rows(uint32_t entry) const = 0;
  // What the drafter wrote where the nonce was: ~nonce, when its writes arrive.
  virtual absl::StatusOr<uint64_t> ReadEcho() = 0;
  // Waits until the drafter's last writes to the entry are done, but not past the deadline: a
  // drafter that died would hold up the device for ever. PRECOND: the drafter said that it recorded
  // them.
  virtual absl::Status AwaitReady(uint32_t entry,
                                  std::chrono::steady_clock::time_point deadline) = 0;
};

// The drafter's end. Closes what it opened when it goes.
class OpenedRingRows {
 public:
  virtual ~OpenedRingRows() = default;

  virtual float* rows(uint32_t entry) const = 0;
  // Leaves the complement of the nonce in its place. FAILED_PRECONDITION, and nothing is written:
  // something else is there, this is other memory.
  virtual absl::Status EchoNonce(uint64_t nonce) = 0;
  // What was enqueued so far writes the entry's rows. To be called before the verifier is told: a
  // wait for an event that was never recorded waits for nothing.
  virtual absl::Status RecordReady(uint32_t entry) = 0;
};

using CreateRingRows = std::function<absl::StatusOr<std::unique_ptr<RingRows>>(
    const RingGeometry& geometry, uint64_t nonce)>;
using OpenRingRows = std::function<absl::StatusOr<std::unique_ptr<OpenedRingRows>>(
    const RingGeometry& geometry, std::span<const RingHandle> handles)>;

}  // namespace tandem

#endif  // TANDEM_COMMON_RING_RING_ROWS_H_
