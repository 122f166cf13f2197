// The verifier's end of the log-prob rings: the rings of one session, one for each draft model, and
// what all sessions share.
#ifndef TANDEM_SERVICES_VERIFIER_VERIFIER_RING_H_
#define TANDEM_SERVICES_VERIFIER_VERIFIER_RING_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ring/log_prob_ring.h"
#include "common/ring/retired_rings.h"
#include "common/ring/ring_socket.h"
#include "common/rpc/protocol.h"
#include "services/worker/worker_model.h"
#include "services/worker/worker_stats.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// Ring epochs of one verifier process. No epoch is used twice, not even after a restart: the epochs
// of a process start at the clock's microseconds.
class RingEpochs {
 public:
  RingEpochs();
  uint64_t Next() { return ++last_; }

 private:
  uint64_t last_;
};

// What all sessions of one verifier share.
struct VerifierRings {
  RingEpochs epochs;
  RetiredRings retired;
};

// The rings of one session.
class SessionRings {
 public:
  // All arguments must outlive the object; other sessions of the same thread share `model` and
  // `rings`. `listener` hands rings to drafters; null: `shm` and `cuda_ipc` are not offered.
  // `judge_checks_rows`: what Judge::checks_draft_rows() says. Only such a judge can read rows in
  // device memory.
  SessionRings(WorkerModel* model, RingListener* listener, VerifierRings* shared,
               bool judge_checks_rows)
      : model_(model),
        listener_(listener),
        shared_(shared),
        judge_checks_rows_(judge_checks_rows) {}
  ~SessionRings();
  SessionRings(const SessionRings&) = delete;
  SessionRings& operator=(const SessionRings&) = delete;

  // Adds the transports that this worker supports, best first.
  void OfferTransports(v1::AttachReply& reply) const;
  // Frees the retired rings that no drafter has open any more, those of other sessions included.
  void SweepRetired() { shared_->retired.Sweep(); }

  // Replaces the ring with one draft model. INVALID_ARGUMENT: there is no model of this number.
  // FAILED_PRECONDITION: the transport or the vocabulary is not this
  // worker's. RESOURCE_EXHAUSTED: drafters still have too many earlier rings open. Other errors are
  // those of LogProbRing and RingListener.
  absl::Status Create(const v1::CreateRing& command, v1::CreateRingReply& reply);
  // Frees the ring with this draft model, if there is one. INVALID_ARGUMENT: as for Create.
  absl::Status DropOf(uint32_t draft_model_number);
  // Checks what the drafter read from the ring, see LogProbRing::Confirm.
  absl::Status Confirm(const v1::ConfirmRing& command);
  // `inline`: stores a piece of a block. A piece has no reply, so an error is only logged. A block
  // that lacks a piece is found, and reported, when it is taken.
  void AcceptChunk(const v1::LogProbChunk& chunk);

  // To be called before the blocks of a batch are taken, see LogProbRing::BeginBatch.
  void BeginBatch();
  // A block, and the number of the draft model that wrote it.
  struct DraftBlock {
    RingBlock rows;
    uint8_t draft_model_number;
  };
  // Takes the block that holds the q rows of `draft_token_ids`. The rows are checked here, unless
  // the judge checks them. After an error the draft cannot be judged.
  absl::StatusOr<DraftBlock> Take(const v1::RingReference& reference,
                                  std::span<const int32_t> draft_token_ids);
  // Counts a block of this ring that was dropped.
  void CountError(const v1::RingReference& reference, RingError reason);

 private:
  bool offers_device_memory() const {
    return listener_ != nullptr && judge_checks_rows_ && model_->create_ring_rows() != nullptr;
  }
  struct Ring {
    std::unique_ptr<LogProbRing> memory;  // null: none was created
    v1::RingTransport transport = v1::RING_TRANSPORT_UNSPECIFIED;
  };
  void Drop(Ring& ring);
  absl::Status CheckNumber(uint32_t draft_model_number) const;
  // FAILED_PRECONDITION: the session has no ring of this epoch.
  absl::StatusOr<size_t> Find(uint64_t ring_epoch) const;

  WorkerModel* model_;
  RingListener* listener_;
  VerifierRings* shared_;
  bool judge_checks_rows_;
  std::array<Ring, kMaxDraftModels> rings_;  // by number of the draft model
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_VERIFIER_VERIFIER_RING_H_
