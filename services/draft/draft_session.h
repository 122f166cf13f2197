// What the draft worker does for one router: the DraftWorker half of proto/tandem/v1/worker.proto.
#ifndef TANDEM_SERVICES_DRAFT_DRAFT_SESSION_H_
#define TANDEM_SERVICES_DRAFT_DRAFT_SESSION_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "common/ring/ring_writer.h"
#include "services/draft/proposer.h"
#include "services/worker/session_server.h"
#include "services/worker/slot_ledger.h"
#include "services/worker/slot_table.h"
#include "services/worker/worker_model.h"
#include "tandem/v1/worker.grpc.pb.h"

namespace tandem {

using DraftHandler = SessionHandler<v1::DraftCommand, v1::DraftReply>;
using DraftServer = SessionServer<v1::DraftWorker, v1::DraftCommand, v1::DraftReply>;

class DraftSession final : public DraftHandler {
 public:
  // `model` must outlive it, and is shared with other sessions of the same thread. `proposer`: how
  // it drafts; null: on the host.
  explicit DraftSession(const WorkerModel* model, std::unique_ptr<Proposer> proposer = nullptr);
  ~DraftSession() override;

  absl::Status Handle(const v1::DraftCommand& command, const Emit& emit) override;

 private:
  // Ring block of an item that is being worked on.
  struct OpenBlock {
    RingRef ref;
    bool wanted = false;
  };

  absl::Status Attach(const v1::Attach& attach, v1::DraftReply& reply);
  absl::Status OpenRing(const v1::OpenRing& command, v1::DraftReply& reply);
  void Propose(const v1::Propose& command, v1::ProposeReply& reply);
  void ReadVocabulary(uint64_t id, const Emit& emit) const;

  // Checks an item that was admitted and makes `proposal` and `block` of it. Changes nothing of the
  // slot.
  absl::Status Prepare(const v1::ProposeItem& item, Slot& slot, Proposal& proposal,
                       OpenBlock& block);
  // Executes the item: rolls back, and takes pages for all its rows, found ones first.
  absl::Status TakePages(const v1::ProposeItem& item, Proposal& proposal,
                         v1::ProposeResult& result);

  const WorkerModel* model_;
  std::unique_ptr<Proposer> proposer_;
  std::optional<SlotLedger<v1::ProposeResult>> slots_;  // once attached
  uint32_t max_draft_length_ = 0;
  std::unique_ptr<RingWriter> ring_;
  v1::RingTransport ring_transport_ = v1::RING_TRANSPORT_UNSPECIFIED;  // of `ring_`
  // Of the command that is being handled: pieces of an inline ring are emitted under its id.
  uint64_t command_id_ = 0;
  const Emit* emit_ = nullptr;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_DRAFT_DRAFT_SESSION_H_
