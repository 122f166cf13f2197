// What the verifier does for one router: the VerifierWorker half of proto/tandem/v1/worker.proto.
#ifndef TANDEM_SERVICES_VERIFIER_VERIFIER_SESSION_H_
#define TANDEM_SERVICES_VERIFIER_VERIFIER_SESSION_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ring/ring_socket.h"
#include "services/verifier/judge.h"
#include "services/verifier/verifier_ring.h"
#include "services/verifier/verifier_shared.h"
#include "services/worker/session/batch_session.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// See BatchSession.
struct VerifierProtocol {
  using Command = v1::VerifierCommand;
  using Reply = v1::VerifierReply;
  using Batch = v1::Verify;
  using BatchReply = v1::VerifyReply;
  using Item = v1::VerifyItem;
  using Result = v1::VerifyResult;
  using Task = JudgeTask;
  static constexpr auto kBatch = Command::kVerify;
  static const Batch& batch(const Command& command) { return command.verify(); }
  static BatchReply& batch_reply(Reply& reply) { return *reply.mutable_verify(); }
};

class VerifierSession final : public BatchSession<VerifierProtocol> {
 public:
  // `model`, `ring_listener` and `shared` must outlive the session; other sessions of the same
  // thread share `model` and `shared`. Without a `ring_listener` the session offers only the
  // `inline` transport. `judge` judges; null: a HostJudge does.
  VerifierSession(WorkerModel* model, RingListener* ring_listener, VerifierShared* shared,
                  std::unique_ptr<Judge> judge = nullptr);

  absl::Status Handle(const v1::VerifierCommand& command, const Emit& emit) override;

 private:
  void Complete(v1::AttachReply& reply) const override;
  absl::Status HandleOther(const v1::VerifierCommand& command, v1::VerifierReply& reply) override;
  void BeginBatch() override;
  absl::StatusOr<NewRows> Prepare(const v1::VerifyItem& item, JudgeTask& task) override;
  void OnExecuted(const v1::VerifyItem& item, JudgeTask& task, v1::VerifyResult& result) override;
  absl::Status Compute(std::span<JudgeTask> tasks) override;
  absl::Status Finish(const v1::VerifyItem& item, JudgeTask& task,
                      v1::VerifyResult& result) override;
  void EndBatch(v1::VerifyReply& reply) override;

  absl::Status SetHeads(const v1::SetHeads& command, v1::SetHeadsReply& reply);
  // Tells the router which heads there are.
  void TellHeads(v1::SelfDrafter* told);
  // Whether there are heads that can guess what follows the slot's text.
  bool CanPropose(Slot& slot);
  // INVALID_ARGUMENT: the item asks for a proposal that no verifier could make.
  absl::Status CheckShape(const v1::VerifyItem& item);
  // INVALID_ARGUMENT: the item asks for log-probabilities that it cannot have.
  absl::Status CheckScores(const v1::VerifyItem& item, const SamplingParams& params);
  // Has the target's own drafter propose for the tasks that want it.
  absl::Status Propose(std::span<JudgeTask> tasks);

  std::unique_ptr<Judge> judge_;
  SessionRings ring_;
  HeadsShelf& heads_;
  uint64_t told_heads_;  // version of the heads that the router knows of
  // These belong to the current batch.
  std::vector<GuessOrder> orders_;  // by the tasks' feature_place
  double propose_seconds_ = 0;
  bool has_lost_heads_ = false;  // the log says so
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_VERIFIER_VERIFIER_SESSION_H_
