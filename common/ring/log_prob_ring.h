// The verifier's end of a log-prob ring: owns the memory, reads blocks of q rows.
#ifndef TANDEM_COMMON_RING_LOG_PROB_RING_H_
#define TANDEM_COMMON_RING_LOG_PROB_RING_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ring/ring_layout.h"
#include "common/ring/ring_memory.h"
#include "common/ring/ring_rows.h"

namespace tandem {

// A block's rows while they are read; gives the entry back (CONSUMING -> FREE) when it goes. The
// ring must outlive it.
class RingBlock {
 public:
  RingBlock(RingEntry* entry, const float* rows) : entry_(entry), rows_(rows) {}
  RingBlock(RingBlock&& other) noexcept
      : entry_(std::exchange(other.entry_, nullptr)), rows_(other.rows_) {}
  RingBlock& operator=(RingBlock&&) = delete;
  ~RingBlock() {
    if (entry_ != nullptr) entry_->state.store(RingEntryState::kFree, std::memory_order_release);
  }

  // [rows, vocabulary_size] f32, contiguous; of a ring on a device, in that one's memory.
  const float* rows() const { return rows_; }

 private:
  RingEntry* entry_;
  const float* rows_;
};

// Used by one thread. What the drafter writes is looked at with suspicion: sizes are this process's
// own, and a block is handed out only under the very (epoch, entry, sequence, rows) that the router
// named.
class LogProbRing {
 public:
  // shared: `shm`, fd() goes to the drafter; else `inline`, filled by AcceptChunk.
  // `ring_epoch` must be new: a drafter of an older ring can then do no harm. `pin`: for a verifier
  // that computes on a device.
  static absl::StatusOr<std::unique_ptr<LogProbRing>> Create(const RingGeometry& geometry,
                                                             uint64_t ring_epoch, bool shared,
                                                             const PinMemory& pin = {});
  // `cuda_ipc`: rows lie where `create_rows` has them; fd() goes to the drafter, with handles.
  static absl::StatusOr<std::unique_ptr<LogProbRing>> CreateOnDevice(
      const RingGeometry& geometry, uint64_t ring_epoch, const CreateRingRows& create_rows);

  const RingGeometry& geometry() const { return view_.geometry(); }
  uint64_t ring_epoch() const { return ring_epoch_; }
  bool shared() const { return memory_.fd() >= 0; }
  bool on_device() const { return device_rows_ != nullptr; }
  // `cuda_ipc`: no drafter has the device's memory open, and none will from now on.
  bool Withdraw();
  // To be called before the blocks of a batch are acquired: for all of them together a drafter's
  // writes are waited for, not for long.
  void BeginBatch();
  int fd() const { return memory_.fd(); }
  size_t bytes() const { return geometry().total_bytes(); }

  // What the drafter says it read from the ring. `shm`: the nonce, and the drafter's echo of it
  // must have arrived in the ring; `inline`: 0, since nothing is shared. FAILED_PRECONDITION
  // otherwise; no block is handed out before.
  absl::Status Confirm(uint64_t nonce);

  // Takes the block that `ref` names, READY -> CONSUMING. FAILED_PRECONDITION, with the reason,
  // when the entry holds anything else; a block of that sequence with another number of rows is
  // dropped.
  absl::StatusOr<RingBlock> Acquire(const RingRef& ref, uint32_t rows);

  // `inline`: the next piece of a block of `rows` rows. Pieces come in order and without gaps; the
  // last makes the entry READY. INVALID_ARGUMENT drops the block: the router broke the protocol.
  absl::Status AcceptChunk(const RingRef& ref, uint32_t rows, uint64_t offset_bytes,
                           std::string_view data);

 private:
  // Of a block that arrives in pieces; this process's own memory.
  struct Arrival {
    uint64_t sequence = 0;  // newest seen
    uint32_t rows = 0;
    uint64_t received_bytes = 0;
    bool arriving = false;
  };

  LogProbRing(RingMemory memory, std::unique_ptr<RingRows> device_rows,
              const RingGeometry& geometry, uint64_t ring_epoch, uint64_t nonce);
  absl::Status CheckReference(const RingRef& ref, uint32_t rows) const;
  absl::Status CheckChunk(const RingRef& ref, uint32_t rows, uint64_t offset_bytes,
                          std::string_view data) const;

  RingMemory memory_;
  std::unique_ptr<RingRows> device_rows_;  // or none
  RingView view_;
  uint64_t ring_epoch_;
  uint64_t nonce_;
  bool confirmed_ = false;
  std::chrono::steady_clock::time_point ready_deadline_;
  std::vector<Arrival> arrivals_;  // one for each entry
};

}  // namespace tandem

#endif  // TANDEM_COMMON_RING_LOG_PROB_RING_H_
