// The verifier's end of a log-prob ring. It owns the memory and reads blocks of q rows.
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

// The rows of a block while they are read. The destructor gives the entry back (CONSUMING -> FREE).
// The ring must outlive the block.
class RingBlock {
 public:
  RingBlock(RingEntry* entry, const float* rows) : entry_(entry), rows_(rows) {}
  RingBlock(RingBlock&& other) noexcept
      : entry_(std::exchange(other.entry_, nullptr)), rows_(other.rows_) {}
  RingBlock& operator=(RingBlock&&) = delete;
  ~RingBlock() {
    if (entry_ != nullptr) entry_->state.store(RingEntryState::kFree, std::memory_order_release);
  }

  // [rows, vocabulary_size] f32, contiguous. The rows of a ring on a device are in device memory.
  const float* rows() const { return rows_; }

 private:
  RingEntry* entry_;
  const float* rows_;
};

// Used by one thread. The ring does not trust what the drafter writes: it uses its own sizes, and
// it hands out a block only under exactly the (epoch, entry, sequence, rows) that the router named.
class LogProbRing {
 public:
  // A shared ring is for `shm`, and fd() goes to the drafter. Otherwise the ring is for `inline`,
  // and AcceptChunk fills it. `ring_epoch` must be new, so that a drafter of an older ring can do
  // no harm. `pin` is for a verifier that computes on a device.
  static absl::StatusOr<std::unique_ptr<LogProbRing>> Create(const RingGeometry& geometry,
                                                             uint64_t ring_epoch, bool shared,
                                                             const PinMemory& pin = {});
  // For `cuda_ipc`. The rows lie where `create_rows` puts them. fd() goes to the drafter, with
  // handles.
  static absl::StatusOr<std::unique_ptr<LogProbRing>> CreateOnDevice(
      const RingGeometry& geometry, uint64_t ring_epoch, const CreateRingRows& create_rows);

  const RingGeometry& geometry() const { return view_.geometry(); }
  uint64_t ring_epoch() const { return ring_epoch_; }
  bool shared() const { return memory_.fd() >= 0; }
  bool on_device() const { return device_rows_ != nullptr; }
  // For `cuda_ipc`. Returns true if no drafter has the device's memory open and none can open it
  // any more.
  bool Withdraw();
  // Called before the blocks of a batch are acquired. It starts the short time limit within which
  // the drafter's writes to all these blocks are awaited.
  void BeginBatch();
  int fd() const { return memory_.fd(); }
  size_t bytes() const { return geometry().total_bytes(); }

  // Checks the nonce that the drafter read from the ring. For `shm`, the drafter's echo of the
  // nonce must also have arrived in the ring. For `inline`, the nonce is 0, because nothing is
  // shared. FAILED_PRECONDITION if the nonce is wrong. No block is handed out before a successful
  // call.
  absl::Status Confirm(uint64_t nonce);

  // Takes the block that `ref` names, READY -> CONSUMING. FAILED_PRECONDITION, with the reason, if
  // the entry holds anything else. A block of that sequence with another number of rows is dropped.
  absl::StatusOr<RingBlock> Acquire(const RingRef& ref, uint32_t rows);

  // For `inline`. Stores the next piece of a block of `rows` rows. Pieces come in order and without
  // gaps, and the last piece makes the entry READY. INVALID_ARGUMENT: the router broke the
  // protocol, and the block is dropped.
  absl::Status AcceptChunk(const RingRef& ref, uint32_t rows, uint64_t offset_bytes,
                           std::string_view data);

 private:
  // A block that arrives in pieces. This state is in memory of this process only.
  struct Arrival {
    uint64_t sequence = 0;  // the newest one that was seen
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
