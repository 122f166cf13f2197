// What the router knows of one worker of a pod: its session, its pages, its slots.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_SLOTS_WORKER_PEER_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_SLOTS_WORKER_PEER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "services/router/engine/engine_command.h"
#include "services/router/engine/sequence.h"
#include "services/router/engine/slots/page_budget.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// A mean that follows its newest samples.
class RunningMean {
 public:
  // 0 before the first sample.
  double value() const { return value_; }
  void Add(double sample) { value_ = value_ == 0 ? sample : value_ + 0.2 * (sample - value_); }

 private:
  double value_ = 0;
};

// What one worker holds of a slot.
struct WorkerSlot {
  uint32_t epoch = 0;            // grows with each life of the slot at this worker
  uint64_t command_number = 0;   // the last command's
  uint64_t rollback_number = 0;  // the last rollback's
  uint32_t cached_len = 0;       // rows of committed tokens
  // All rows. A drafter's rows of draft tokens follow those of the committed tokens.
  uint32_t held_len = 0;
  bool open = false;  // whether the worker was told what the request is
};

// Keeps what the engine knows of one worker, whichever it is. The engine decides what is sent.
class WorkerPeer {
 public:
  // The session is ready. The worker holds nothing yet.
  void Attach(SessionId session, const v1::AttachReply& info);
  // The session is lost, and all that the worker held with it.
  void Lose();
  // Another model has the place of this one. PRECOND: the session is lost.
  void Forget() {
    pages_ = PageBudget();
    row_seconds_ = RunningMean();
  }
  // The session whose caches the slots describe; 0: none is ready.
  SessionId session() const { return session_; }

  void ResizeSlots(size_t num_slots) { slots_.resize(num_slots); }
  const WorkerSlot& slot(uint32_t id) const { return slots_[id]; }
  // Number of slots that are open at the worker. A slot whose close was not sent yet is still open.
  size_t num_open_slots() const;

  PageBudget& pages() { return pages_; }
  const PageBudget& pages() const { return pages_; }
  // Seconds that a row of a prompt takes.
  RunningMean& row_seconds() { return row_seconds_; }
  const RunningMean& row_seconds() const { return row_seconds_; }

  // Begins a new life of the slot, of which the worker knows nothing.
  void BeginLife(uint32_t id);
  // Ends the slot's life. The close waits for the next command, if the worker knows of this life.
  void Close(uint32_t id);
  // Moves the closes that wait into `update`, which is about to be sent. PRECOND: the worker has no
  // batch under way.
  void TakeCloses(v1::UpdateSlots* update);

  // Names the slot's rows of committed tokens in the slot's next command, which gets its number
  // here. PRECOND: `sequence` is the slot's.
  v1::SlotPoint NextPoint(uint32_t id, const Sequence& sequence);
  // Returns true for the first command of a life, which must carry `open`.
  bool Open(uint32_t id);
  // The worker executed a command: it holds `held_len` rows, the first `cached_len` of them of
  // committed tokens.
  void Hold(uint32_t id, uint32_t cached_len, uint32_t held_len);
  // The first `num_rows` rows of draft tokens were committed, or all of them if there are fewer.
  void CommitRows(uint32_t id, uint32_t num_rows);
  // The worker refused a command and says what it holds. The router believes this if it is a prefix
  // of the sequence. PRECOND: state.slot() is a slot, and `sequence` is the slot's.
  void Resynchronize(const v1::SlotState& state, const Sequence& sequence);

  // Rows beyond those of committed tokens.
  uint32_t num_extra_rows(uint32_t id) const { return slots_[id].held_len - slots_[id].cached_len; }
  // Whole pages that a rollback of these rows returns.
  int64_t num_extra_pages(uint32_t id) const;
  // Rolls the slot back to its rows of committed tokens. The command is about to be sent, and gets
  // its number here. PRECOND: as for NextPoint, and the worker has no batch under way.
  v1::SlotPoint RollBack(uint32_t id, const Sequence& sequence);
  // The answer to a rollback counts only if it answers the slot's newest command. An error says
  // which rule the answer breaks. PRECOND: state.slot() is a slot.
  absl::Status CheckRolledBack(const v1::SlotState& state) const;
  // The worker answered a rollback. PRECOND: as for Resynchronize, and CheckRolledBack is OK.
  void OnRolledBack(const v1::SlotState& state, const Sequence& sequence);

 private:
  bool AnswersNewest(const v1::SlotState& state) const;

  SessionId session_ = 0;
  PageBudget pages_;
  RunningMean row_seconds_;
  std::vector<WorkerSlot> slots_;      // by slot id
  std::vector<v1::SlotClose> closes_;  // closes that wait for the next command
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_SLOTS_WORKER_PEER_H_
