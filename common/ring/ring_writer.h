// The drafter's end of a log-prob ring: the place for q rows, for every transport.
#ifndef TANDEM_COMMON_RING_RING_WRITER_H_
#define TANDEM_COMMON_RING_RING_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ring/ring_layout.h"
#include "common/ring/ring_memory.h"
#include "common/ring/ring_rows.h"
#include "common/ring/unique_fd.h"

namespace tandem {

// Several blocks of different entries can be in progress at once. With device memory (cuda_ipc),
// the work that the caller enqueues writes the rows. CommitBlock then records the entry's event,
// before the message that names the entry is sent. Used by one thread.
class RingWriter {
 public:
  virtual ~RingWriter() = default;

  // Takes the entry that `ref` names, for at most `max_rows` rows: [max_rows, vocabulary_size] f32,
  // which the caller writes. An older block in the entry is discarded. INVALID_ARGUMENT: no such
  // entry, too many rows, or a sequence that is not newer. FAILED_PRECONDITION: another ring epoch,
  // or the entry is being filled or read because the router gave it away twice.
  virtual absl::StatusOr<std::span<float>> BeginBlock(const RingRef& ref, uint32_t max_rows) = 0;
  // Lets the verifier read the first `rows` rows: at least 1, and at most the number that
  // BeginBlock got.
  // PRECOND of both: BeginBlock(ref) was called, and none of the two was called since.
  virtual void CommitBlock(const RingRef& ref, uint32_t rows) = 0;
  virtual void AbandonBlock(const RingRef& ref) = 0;
};

// For `shm` and `cuda_ipc`: rows lie in the memory that the verifier reads, on the host or on a
// device.
class SharedRingWriter final : public RingWriter {
 public:
  // Maps the descriptor that the verifier handed out, checks that it is the announced ring, and
  // echoes the nonce. FAILED_PRECONDITION names the difference. `open_rows` opens the rows in
  // device memory. If it is empty, the rows are in host memory, which is pinned with `pin`.
  static absl::StatusOr<std::unique_ptr<SharedRingWriter>> Open(UniqueFd fd,
                                                                const RingGeometry& geometry,
                                                                uint64_t ring_epoch,
                                                                const OpenRingRows& open_rows = {},
                                                                const PinMemory& pin = {});
  ~SharedRingWriter() override;

  uint64_t nonce() const { return nonce_; }  // read from the memory that holds the rows

  absl::StatusOr<std::span<float>> BeginBlock(const RingRef& ref, uint32_t max_rows) override;
  void CommitBlock(const RingRef& ref, uint32_t rows) override;
  void AbandonBlock(const RingRef& ref) override;

 private:
  SharedRingWriter(RingMemory memory, std::unique_ptr<OpenedRingRows> device_rows,
                   const RingGeometry& geometry, uint64_t ring_epoch);

  RingMemory memory_;
  std::unique_ptr<OpenedRingRows> device_rows_;  // or none
  RingView view_;
  uint64_t ring_epoch_;
  uint64_t nonce_;
  std::vector<uint64_t> last_sequences_;  // one for each entry
};

// For `inline`: rows are collected here and are sent in pieces when the block is committed.
class InlineRingWriter final : public RingWriter {
 public:
  // One piece, at most 1 MiB, of a block of `rows` rows.
  using EmitPiece = std::function<void(const RingRef& ref, uint32_t rows, uint64_t offset_bytes,
                                       std::span<const float> piece)>;

  // `pin`: for a drafter that computes on a device.
  static absl::StatusOr<std::unique_ptr<InlineRingWriter>> Create(const RingGeometry& geometry,
                                                                  uint64_t ring_epoch,
                                                                  EmitPiece emit,
                                                                  const PinMemory& pin = {});

  absl::StatusOr<std::span<float>> BeginBlock(const RingRef& ref, uint32_t max_rows) override;
  void CommitBlock(const RingRef& ref, uint32_t rows) override;
  void AbandonBlock(const RingRef& ref) override;

 private:
  InlineRingWriter(RingMemory memory, const RingGeometry& geometry, uint64_t ring_epoch,
                   EmitPiece emit);

  RingMemory memory_;  // memory of this process only
  RingView view_;
  uint64_t ring_epoch_;
  EmitPiece emit_;
  std::vector<uint64_t> last_sequences_;  // one for each entry
  std::vector<bool> filling_;             // entries whose rows are being written
};

}  // namespace tandem

#endif  // TANDEM_COMMON_RING_RING_WRITER_H_
