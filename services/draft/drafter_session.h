// What the drafter does for one router: the DraftWorker half of proto/tandem/v1/worker.proto.
#ifndef TANDEM_SERVICES_DRAFT_DRAFTER_SESSION_H_
#define TANDEM_SERVICES_DRAFT_DRAFTER_SESSION_H_

#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/draft/drafter_ring.h"
#include "services/draft/proposer.h"
#include "services/worker/session/batch_session.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// See BatchSession.
struct DrafterProtocol {
  using Command = v1::DraftCommand;
  using Reply = v1::DraftReply;
  using Batch = v1::Propose;
  using BatchReply = v1::ProposeReply;
  using Item = v1::ProposeItem;
  using Result = v1::ProposeResult;
  using Task = DraftTask;
  static constexpr auto kBatch = Command::kPropose;
  static const Batch& batch(const Command& command) { return command.propose(); }
  static BatchReply& batch_reply(Reply& reply) { return *reply.mutable_propose(); }
};

class DrafterSession final : public BatchSession<DrafterProtocol> {
 public:
  // `model` must outlive the session. `proposer` drafts; null: a HostProposer does.
  explicit DrafterSession(WorkerModel* model, std::unique_ptr<Proposer> proposer = nullptr);

 private:
  void Complete(v1::AttachReply& reply) const override;
  absl::Status HandleOther(const v1::DraftCommand& command, v1::DraftReply& reply) override;
  absl::StatusOr<NewRows> Prepare(const v1::ProposeItem& item, DraftTask& task) override;
  void Abandon(const v1::ProposeItem& item, DraftTask& task) override;
  absl::Status Compute(std::span<DraftTask> tasks) override;
  absl::Status Finish(const v1::ProposeItem& item, DraftTask& task,
                      v1::ProposeResult& result) override;
  void EndBatch(v1::ProposeReply& reply) override;

  // INVALID_ARGUMENT: the item asks for siblings that no draft of this session may have.
  absl::Status CheckSiblings(const v1::ProposeItem& item) const;
  // Sends the vocabulary in pieces. The last piece is left in `reply`.
  void ReadVocabulary(v1::DraftReply& reply);

  std::unique_ptr<Proposer> proposer_;
  DrafterRing ring_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_DRAFT_DRAFTER_SESSION_H_
