// One session of a worker: everything that the drafter and the verifier do alike for a router.
#ifndef TANDEM_SERVICES_WORKER_SESSION_BATCH_SESSION_H_
#define TANDEM_SERVICES_WORKER_SESSION_BATCH_SESSION_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/rpc/grpc_status.h"
#include "common/status.h"
#include "kernels/sampling/transform/sampling_params.h"
#include "proto/draft_tree.h"
#include "services/worker/session/session_handler.h"
#include "services/worker/session/wire.h"
#include "services/worker/slots/slot_ledger.h"
#include "services/worker/slots/slot_table.h"
#include "services/worker/stopwatch.h"
#include "services/worker/worker_model.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// Attaches the router, dispatches its commands, and runs its batches. A derived class adds the ring
// and what computes: the proposer or the judge. `Protocol` names the messages of the worker:
//   Command, Reply        what the stream carries
//   Batch, BatchReply     a command with items for many slots, and its reply
//   Item, Result          one slot's part of a batch, and of its reply
//   Task                  what the proposer or the judge gets for an item; it has the fields `slot`
//                         and `token_ids`
//   kBatch                the kind of a Command that holds a Batch
//   batch(), batch_reply()  access to the Batch of a Command and to the BatchReply of a Reply
//
// The session runs a batch in this order:
//   update slots, BeginBatch
//   for each item:           Admit, Prepare, Execute, OnExecuted; an error refuses the item
//   for all items together:  Compute
//   for each executed item:  Finish (an error refuses the item), Settle
//   EndBatch
// Admit, Execute, Refuse and Settle are the ledger's: see SlotLedger.
template <typename Protocol>
class BatchSession : public SessionHandler<typename Protocol::Command, typename Protocol::Reply> {
 public:
  using Command = typename Protocol::Command;
  using Reply = typename Protocol::Reply;
  using Batch = typename Protocol::Batch;
  using BatchReply = typename Protocol::BatchReply;
  using Item = typename Protocol::Item;
  using Result = typename Protocol::Result;
  using Task = typename Protocol::Task;
  using Emit = typename SessionHandler<Command, Reply>::Emit;

  // `model` must outlive the session. All sessions of a worker share the model, in one thread.
  explicit BatchSession(WorkerModel* model) : model_(model) {}
  ~BatchSession() override {
    if (attached()) --model_->stats().num_sessions;
  }
  BatchSession(const BatchSession&) = delete;
  BatchSession& operator=(const BatchSession&) = delete;

  absl::Status Handle(const Command& command, const Emit& emit) override {
    command_id_ = command.id();
    emit_ = &emit;
    Reply reply;
    const absl::Status status = Dispatch(command, reply);
    if (!status.ok()) {
      model_->CheckDevice(status);
      reply.mutable_error()->set_code(ToWorkerCode(status.code()));
      reply.mutable_error()->set_message(std::string(status.message()));
    }
    if (reply.kind_case() != Reply::KIND_NOT_SET) EmitReply(std::move(reply));
    // A router that cannot attach cannot do anything else.
    return attached() ? absl::OkStatus() : status;
  }

 protected:
  WorkerModel& model() { return *model_; }
  const DraftLimits& draft_limits() const { return draft_limits_; }   // as the router attached
  uint8_t draft_model_number() const { return draft_model_number_; }  // the same
  // The current batch's time for writing or reading rows of the ring. Derived classes add to this
  // time.
  double* transfer_seconds() { return &transfer_seconds_; }

  // Sends a reply to the command that is being handled, before the reply that ends the command.
  void EmitReply(Reply reply) {
    reply.set_id(command_id_);
    (*emit_)(std::move(reply));
  }

  static absl::Status UnknownCommand() {
    return InvalidArgument("the command is empty or of another release");
  }

  // True if a draft is judged by the distribution that it was drawn from. Greedy and coupled
  // (reproducible) draws are judged without their distribution.
  static bool IsSampled(const SamplingParams& params) {
    return !params.greedy() && !params.reproducible;
  }

 private:
  // ---- What a worker adds ----

  // Adds the ring transports of this worker, best first, and what else it alone states.
  virtual void Complete(v1::AttachReply& reply) const = 0;
  // Handles a command that this class does not know. A `reply` that stays empty is not sent.
  virtual absl::Status HandleOther(const Command& command, Reply& reply) = 0;

  virtual void BeginBatch() {}
  // Checks an item that was admitted, fills in `task`, and returns the rows that the item adds to
  // its slot. Changes nothing of the slot. The drafter opens its ring block here: an item without a
  // place for its rows must be refused before anything changes.
  // PRECOND: `task` has its slot and all token ids of the item, each in the vocabulary.
  virtual absl::StatusOr<NewRows> Prepare(const Item& item, Task& task) = 0;
  // The slot now has pages for all rows of the item. The verifier opens its ring block here: a
  // block can be taken only once, and a refused item may be sent again.
  virtual void OnExecuted(const Item& /*item*/, Task& /*task*/, Result& /*result*/) {}
  // Gives up what Prepare took. Called before the item is refused, also if Prepare itself failed.
  virtual void Abandon(const Item& /*item*/, Task& /*task*/) {}
  // An error concerns all tasks.
  virtual absl::Status Compute(std::span<Task> tasks) = 0;
  // Publishes the slot's pages and writes the result of a task that was computed. An error refuses
  // the item.
  virtual absl::Status Finish(const Item& item, Task& task, Result& result) = 0;
  virtual void EndBatch(BatchReply& /*reply*/) {}

  // ---- What both workers share ----

  // An item that was executed, but not settled yet.
  struct Executed {
    const Item* item;
    Result* result;
  };

  bool attached() const { return slots_.has_value(); }

  absl::Status Dispatch(const Command& command, Reply& reply) {
    if (!attached() && command.kind_case() != Command::kAttach) {
      return FailedPrecondition("the session is not attached");
    }
    switch (command.kind_case()) {
      case Command::kAttach:
        return Attach(command.attach(), *reply.mutable_attach());
      case Command::kUpdateSlots:
        slots_->UpdateSlots(command.update_slots(), *reply.mutable_update_slots());
        return absl::OkStatus();
      case Protocol::kBatch:
        RunBatch(Protocol::batch(command), Protocol::batch_reply(reply));
        return absl::OkStatus();
      default:
        return HandleOther(command, reply);
    }
  }

  absl::Status Attach(const v1::Attach& attach, v1::AttachReply& reply) {
    if (attached()) return FailedPrecondition("the session is attached already");
    TANDEM_RETURN_IF_ERROR(CheckAttach(attach));
    slots_.emplace(&model_->caches(), model_->vocabulary_size(), attach.max_slots());
    ++model_->stats().num_sessions;
    draft_limits_ = {attach.max_draft_length(), attach.max_tree_nodes()};
    draft_model_number_ = static_cast<uint8_t>(attach.draft_model_number());
    reply = model_->Describe();
    Complete(reply);
    return absl::OkStatus();
  }

  void RunBatch(const Batch& batch, BatchReply& reply) {
    const Stopwatch total;
    transfer_seconds_ = 0;
    if (batch.has_update_slots()) {
      slots_->UpdateSlots(batch.update_slots(), *reply.mutable_update_slots());
    }

    std::vector<Task> tasks;
    std::vector<Executed> executed;  // [i] is the item of tasks[i]
    slots_->BeginBatch();
    BeginBatch();
    for (const Item& item : batch.items()) {
      Result& result = *reply.add_results();
      Task task;
      task.slot = slots_->Admit(item.at(), item.has_open() ? &item.open() : nullptr, result);
      if (task.slot == nullptr) continue;
      if (const absl::Status status = Execute(item, task, result); !status.ok()) {
        model_->CheckDevice(status);
        Abandon(item, task);
        slots_->Refuse(item.at(), status, result);
        continue;
      }
      tasks.push_back(std::move(task));
      executed.push_back({&item, &result});
    }

    const absl::Status status = Compute(tasks);
    model_->CheckDevice(status);
    for (size_t i = 0; i < tasks.size(); ++i) {
      Settle(*executed[i].item, status, tasks[i], *executed[i].result);
    }
    reply.set_num_free_pages(static_cast<uint32_t>(model_->caches().pages().num_free()));
    reply.set_transfer_seconds(transfer_seconds_);
    reply.set_compute_seconds(total.seconds() - transfer_seconds_);
    ++model_->stats().num_batches;
    model_->stats().compute_seconds += reply.compute_seconds();
    EndBatch(reply);
  }

  // Checks an item that was admitted, then executes it: rolls its slot back, and takes pages for
  // all its rows, pages of the prefix cache first. After an error the slot is unchanged.
  absl::Status Execute(const Item& item, Task& task, Result& result) {
    task.token_ids = ToSpan(item.token_ids());
    TANDEM_RETURN_IF_ERROR(CheckTokenIds("token_ids", task.token_ids, model_->vocabulary_size()));
    TANDEM_ASSIGN_OR_RETURN(const NewRows rows, Prepare(item, task));
    TANDEM_ASSIGN_OR_RETURN(const size_t num_cached, slots_->Execute(item.at(), rows, *task.slot));
    task.token_ids = task.token_ids.subspan(num_cached);
    result.set_num_cached_tokens(static_cast<uint32_t>(num_cached));
    OnExecuted(item, task, result);
    return absl::OkStatus();
  }

  // Ends an item that was executed. `computed`: what Compute returned for the whole batch.
  void Settle(const Item& item, const absl::Status& computed, Task& task, Result& result) {
    absl::Status status;
    if (computed.ok()) {
      status = Finish(item, task, result);
    } else {
      status = Internal(std::string(computed.message()));
      task.slot->TruncateTo(item.at().length());
      Abandon(item, task);
    }
    if (!status.ok()) slots_->Refuse(item.at(), status, result);
    slots_->Settle(item.at(), *task.slot, result);
  }

  WorkerModel* model_;
  std::optional<SlotLedger<Result>> slots_;  // once attached
  DraftLimits draft_limits_;
  uint8_t draft_model_number_ = 0;
  double transfer_seconds_ = 0;
  // The command that is being handled.
  uint64_t command_id_ = 0;
  const Emit* emit_ = nullptr;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_SESSION_BATCH_SESSION_H_
