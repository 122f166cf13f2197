// What the verifier does for one router: the VerifierWorker half of proto/tandem/v1/worker.proto.
#ifndef TANDEM_SERVICES_VERIFIER_VERIFIER_SESSION_H_
#define TANDEM_SERVICES_VERIFIER_VERIFIER_SESSION_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "common/ring/log_prob_ring.h"
#include "common/ring/retired_rings.h"
#include "common/ring/ring_socket.h"
#include "services/verifier/judge.h"
#include "services/worker/session_server.h"
#include "services/worker/slot_ledger.h"
#include "services/worker/slot_table.h"
#include "services/worker/worker_model.h"
#include "tandem/v1/worker.grpc.pb.h"

namespace tandem {

using VerifierHandler = SessionHandler<v1::VerifierCommand, v1::VerifierReply>;
using VerifierSessionServer =
    SessionServer<v1::VerifierWorker, v1::VerifierCommand, v1::VerifierReply>;

// Ring epochs of one verifier process, never twice: also not after a restart, since they start at
// the clock's microseconds.
class RingEpochs {
 public:
  RingEpochs();
  uint64_t Next() { return ++last_; }

 private:
  uint64_t last_;
};

// What the sessions of one verifier share of their rings.
struct VerifierRings {
  RingEpochs epochs;
  RetiredRings retired;
};

class VerifierSession final : public VerifierHandler {
 public:
  // All must outlive it; `model` and `rings` are shared with other sessions of the same thread.
  // `ring_listener` may be null: then `shm` is not offered. `judge`: how it judges; null: on the
  // host.
  VerifierSession(const WorkerModel* model, RingListener* ring_listener, VerifierRings* rings,
                  std::unique_ptr<Judge> judge = nullptr);
  ~VerifierSession() override;

  absl::Status Handle(const v1::VerifierCommand& command, const Emit& emit) override;

 private:
  absl::Status Attach(const v1::Attach& attach, v1::AttachReply& reply);
  absl::Status CreateRing(const v1::CreateRing& command, v1::CreateRingReply& reply);
  absl::Status ConfirmRing(const v1::ConfirmRing& command);
  void AcceptChunk(const v1::LogProbChunk& chunk);
  void Verify(const v1::Verify& command, v1::VerifyReply& reply);
  void DropRing();
  void CountRingError(RingError reason);
  // A ring in device memory is for a judge that looks at its rows there.
  bool SharesDevice() const {
    return model_->create_ring_rows() != nullptr && judge_->checks_draft_rows();
  }

  // Checks an item that was admitted and makes `judgement` of it. Changes nothing.
  absl::Status Prepare(const v1::VerifyItem& item, Slot& slot, Judgement& judgement) const;
  // Executes the item: rolls back, and takes pages for all its rows, found ones first.
  absl::Status TakePages(const v1::VerifyItem& item, Judgement& judgement,
                         v1::VerifyResult& result);
  // The item's q rows, checked. An error drops the block.
  absl::StatusOr<RingBlock> TakeBlock(const v1::VerifyItem& item);

  const WorkerModel* model_;
  RingListener* ring_listener_;
  VerifierRings* rings_;
  std::unique_ptr<Judge> judge_;
  std::optional<SlotLedger<v1::VerifyResult>> slots_;  // once attached
  uint32_t max_draft_length_ = 0;
  std::unique_ptr<LogProbRing> ring_;
  v1::RingTransport ring_transport_ = v1::RING_TRANSPORT_UNSPECIFIED;  // of `ring_`
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_VERIFIER_VERIFIER_SESSION_H_
