// The router's logic as a pure state machine: events in, commands out. No I/O, no clock, no
// randomness, one thread.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_ENGINE_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_ENGINE_H_

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/tokenizer/tokenizer.h"
#include "services/router/audit/audit_monitor.h"
#include "services/router/drafting/draft_length_controller.h"
#include "services/router/engine/counts.h"
#include "services/router/engine/engine_command.h"
#include "services/router/engine/engine_observer.h"
#include "services/router/engine/pod_room.h"
#include "services/router/engine/request_ledger.h"
#include "services/router/engine/sequence.h"
#include "services/router/engine/sessions/worker_sessions.h"
#include "services/router/engine/worker_peer.h"
#include "services/router/request/generation_request.h"

namespace tandem {

struct EngineOptions {
  WorkerSessionsOptions workers;
  size_t max_queue = 256;
  // Where a request does not say; none: what pays (DraftLengthController).
  std::optional<uint32_t> draft_length;
  // Rows of one batch at a worker.
  uint32_t step_rows = 512;
  // While others decode, what is worked off of prompts between two of their rounds is cut to what
  // takes about so long.
  double step_seconds = 0.2;
  // 2: the drafter works for one half of the slots while the verifier works for the other.
  uint32_t num_cohorts = 1;
  // Without a verifier for so long, requests end with UNAVAILABLE.
  double verifier_timeout_seconds = 30;
  // A batch that takes longer: the drafter is given up and tried anew.
  double drafter_timeout_seconds = 30;
  // A request that was in the batch of so many dying verifiers in a row is refused.
  int max_lost_rounds = 2;
  // Of finished requests, decoded again without drafting (docs/audit.md).
  double audit_fraction = 0;
  uint64_t audit_key = 0;  // chooses them
};

// Owns the truth about every request: prompt, committed tokens, parameters, seed. Workers hold
// caches of it, of which it knows the length; each is always sent tokens [cached_len,
// committed_len), whatever the reason they are lacking.
//
// A round of a cohort of slots: one Propose batch for those that draft, then one Verify batch for
// all (drafted blocks, plain steps and prompt chunks), then commit. A worker has one batch at a
// time. Requests join and leave between batches. Whatever goes wrong with the drafter, the round
// goes on without its drafts; when the verifier is lost, slots wait, and are rebuilt by the same
// rule. docs/scheduler.md tells more.
//
// `now` is seconds on a monotonic clock. After any event, TakeCommands gives what is to be done, in
// order; NextDeadline says when to call Tick at the latest.
class Engine {
 public:
  // All must outlive it. `ledger`: of several engines of one router; null: it has its own.
  Engine(const EngineOptions& options, const Tokenizer* tokenizer,
         EngineObserver* observer = NobodyObserves(), RequestLedger* ledger = nullptr);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // What is answered to any request that comes now, whatever it says; nullopt: it may be taken. To
  // be asked before the work of reading one, so that overload costs little.
  struct Refusal {
    absl::Status status;
    int retry_milliseconds = 0;  // 0: no hint
  };
  std::optional<Refusal> RefusesAll(double now) const;

  // Events.
  void Start(double now);
  void OnRequest(CallId call, GenerationRequest request, double now);
  // Also deadline, disconnect and slow client; the call is forgotten. What it returns is
  // the slot that it had last.
  std::optional<SlotLife> OnCancel(CallId call, double now);
  void OnDraftReply(SessionId session, v1::DraftReply& reply, double now);
  void OnVerifierReply(SessionId session, v1::VerifierReply& reply, double now);
  void OnSessionLost(Worker worker, SessionId session, const std::string& why, double now);
  void OnPong(Worker worker, SessionId session, const v1::WatchPong& pong, double now);
  void Tick(double now);
  void Drain();           // refuses new requests; running and queued ones go on
  void Stop(double now);  // ends those too, with UNAVAILABLE

  // With other engines (Fleet). A request is its tokens, its parameters and its seed, so it can be
  // handed from one engine to another between any two tokens: the next one rebuilds it by the
  // catch-up rule.
  //
  // Checks a request like OnRequest, without room for it; null: it was refused.
  std::unique_ptr<Sequence> Accept(CallId call, GenerationRequest request, double now);
  // Takes up what another engine released, or accepted.
  void Adopt(std::unique_ptr<Sequence> sequence, double now);
  // Gives up clients' requests that `wants` names, the oldest first: those that wait, and those
  // that run if the verifier is gone. Their ids stay in the ledger.
  std::vector<std::unique_ptr<Sequence>> Release(const std::function<bool(const Sequence&)>& wants,
                                                 double now);
  // What its verifier must offer, whenever it attaches: what others of the router do.
  void Expect(const v1::AttachReply& promised) { workers_.Expect(promised); }
  // For what it could take now, when nothing waits.
  PodRoom Room(double now) const;
  // When it takes requests again after one found no room; in the past: it does.
  double admit_at() const { return admit_at_; }
  // Its verifier could ever hold the whole request.
  bool CanHold(const Sequence& sequence) const;
  bool Has(CallId call) const;
  // Gives both sessions up, for good. PRECOND: idle().
  void Close() { workers_.Close(); }

  EngineCommands TakeCommands() { return std::exchange(commands_, {}); }
  // The commands taken have been carried out: a batch among them is under way from now on, so that
  // the time before counts as the router's.
  void OnCommandsSent(double now);
  double NextDeadline() const;

  // State, for server info, readiness and tests.
  const WorkerSessions& workers() const { return workers_; }
  const DraftLengthController& controller() const { return controller_; }
  uint32_t num_slots() const { return static_cast<uint32_t>(slots_.size()); }
  // Of clients; replays of the audit do not count.
  size_t num_running() const;
  size_t num_queued() const { return queue_.size() + preempted_.size(); }
  bool idle() const { return num_running() == 0 && num_queued() == 0; }
  bool draining() const { return draining_; }
  const AuditMonitor& audit() const { return ledger_->audit; }
  double mean_service_seconds() const { return mean_service_seconds_; }
  const Counts& counts() const { return counts_; }
  Gauges ReadGauges() const;

  // What a full queue is answered with.
  static Refusal QueueIsFull(size_t max_queue, size_t num_waiting, size_t num_slots,
                             double mean_service_seconds);

 private:
  // What the workers hold of a slot is in `peers_`.
  struct Slot {
    std::unique_ptr<Sequence> sequence;
    uint32_t cohort = 0;
    Fallback fallback = Fallback::kNoDrafter;  // why it has no draft in this round, if it has none
  };
  // A block on its way from the drafter to the verifier.
  struct Draft {
    uint64_t serial = 0;
    std::vector<int32_t> token_ids;
    std::optional<v1::RingReference> ring;
    SessionId session = 0;  // of the drafter
  };
  struct Cohort {
    enum class Stage : uint8_t { kIdle, kProposing, kProposed, kVerifying };
    Stage stage = Stage::kIdle;
    std::vector<Draft> drafts;  // by slot, once kProposed
    RoundSeconds round;         // of a Propose of this round; zero without one
    double round_begun_at = 0;  // of that
  };
  struct ProposeBatch {
    struct Item {
      uint32_t slot;
      uint64_t serial;
      uint32_t end;  // cached_len after the committed tokens that were sent
      uint32_t draft_length;
      std::optional<v1::RingReference> ring;
    };
    uint32_t cohort;
    uint64_t id;
    SessionId session;
    SessionId verifier_session;  // whose ring the blocks are in
    double begun_at;             // of the event that it follows from
    double sent_at;
    std::vector<Item> items;
    uint32_t rows = 0;  // of committed tokens
    bool sent = false;
    double idle_since = 0;  // the worker says that it computes nothing; 0: it does not say so
  };
  struct VerifyBatch {
    struct Item {
      uint32_t slot;
      uint64_t serial;
      uint32_t begin;  // cached_len before
      uint32_t end;
      bool sample;
      Draft draft;
    };
    uint32_t cohort;
    uint64_t id;
    SessionId session;
    double begun_at;
    double sent_at;
    std::vector<Item> items;
    uint32_t rows = 0;
    uint32_t prompt_rows = 0;
    double attended = 0;  // positions, by all rows
    bool sent = false;
    double idle_since = 0;
  };
  // The slots of a cohort that can draft now, and what else is in their round.
  struct DraftChoice {
    std::vector<DraftCandidate> candidates;
    std::vector<uint32_t> ids;  // slots of the candidates
    DraftBatch rest;
  };
  // What a Propose batch would do for one slot.
  struct ProposePlan {
    uint32_t slot;
    uint32_t num_tokens;    // committed ones
    uint32_t draft_length;  // 0: the drafter only catches up
  };
  // What a Verify batch would do for one slot.
  struct VerifyPlan {
    uint32_t slot;
    uint32_t num_tokens;  // committed ones
    uint32_t num_drafted;
  };

  // Sends what there is to send; called at the end of every event.
  void Pump(double now);
  void Advance(uint32_t cohort, double now);

  // Rollbacks and closes of slots (rounds/rollback.cc).
  //
  // Slots of which the drafter holds rows of draft tokens that nobody will judge any more.
  std::vector<uint32_t> DueRollbacks(PeerId peer) const;
  // Slots with a block of the peer's current session that waits for its verdict, by slot id.
  std::vector<bool> AwaitingVerdict(const WorkerPeer& peer) const;
  // What the worker must do before the next batch: rollbacks, which get their numbers here, and
  // closes. None: nothing. `rides`: a batch carries it. Otherwise it holds only the rollbacks that
  // return a whole page. PRECOND: it is sent at once, and the worker has no batch under way.
  std::optional<v1::UpdateSlots> TakeUpdates(PeerId peer, bool rides);
  // Sends what no batch carried. PRECOND: the worker has no batch under way.
  void SendUpdates(PeerId peer);
  // The worker answered rollbacks. An error text when it broke the protocol.
  std::string TakeRollbacks(PeerId peer, const v1::UpdateSlotsReply& reply);

  // Slots and queues (engine.cc).
  void NoticeLostSessions(double now);
  void OnDrafterLost();
  void OnVerifierLost(double now);
  void Admit(double now);
  bool HasRoomFor(const Sequence& sequence, double now) const;
  std::optional<uint32_t> SlotForNext();
  std::optional<uint32_t> PreemptReplay();  // the slot that it had
  void Occupy(uint32_t slot_id, std::unique_ptr<Sequence> sequence, double now);
  std::unique_ptr<Sequence> Vacate(uint32_t slot_id);
  void Preempt(uint32_t slot_id);
  void AddPreempted(std::unique_ptr<Sequence> sequence);
  Sequence* Find(uint32_t slot_id, uint64_t serial);
  void FinishSlot(uint32_t slot_id, const absl::Status& status);
  void EndEverything(const absl::Status& status);
  void CheckVerifierBudget(double now);
  Refusal QueueIsFull() const;
  int64_t PagesSpokenFor() const;
  std::unique_ptr<Sequence> NewSequence(CallId call, GenerationRequest request, double now) const;

  // Rounds (rounds/rounds.cc).
  //
  // Asks the drafter for a cohort's drafts: gathers who can draft, lets the controller choose how
  // much, plans what fits, and builds the command. False: there is nothing to ask for.
  bool SendPropose(uint32_t cohort, double now);
  DraftChoice GatherCandidates(uint32_t cohort);
  std::vector<ProposePlan> PlanPropose(const DraftChoice& choice);
  void BuildPropose(uint32_t cohort, const std::vector<ProposePlan>& plans, double now);
  // Gives up what the drafter holds of a slot that has not drafted for long, and is not to draft
  // now.
  void CloseIdleDraft(const DraftChoice& choice);
  // 0: none, and why.
  uint32_t DraftLimit(const Slot& slot, uint32_t slot_id, Fallback* why) const;
  std::optional<uint32_t> FixedDraftLength(const Sequence& sequence) const;
  bool IsWaiting(const Slot& slot) const;
  void SendVerify(uint32_t cohort, double now);
  std::vector<VerifyPlan> PlanVerify(uint32_t cohort) const;
  void ReservePages(std::vector<VerifyPlan>* plans);
  // The slot that gives its pages up for `sequence`: the youngest of those that are younger and
  // hold rows. None: there is none.
  std::optional<uint32_t> YoungestAfter(const Sequence& sequence) const;
  uint32_t RowsWithinStep(double seconds_per_row) const;
  void OnCommandRefused(PeerId peer, bool of_batch, const v1::WorkerError& error, double now);
  void OnPropose(v1::ProposeReply& reply, double now);
  // An error text when the drafter broke the protocol.
  std::string TakeDraft(const ProposeBatch::Item& item, v1::ProposeResult& result, Draft* draft);
  void ForwardLogProbs(v1::DraftReply& reply, double now);
  void OnVerify(v1::VerifyReply& reply, double now);
  void OnOpenSlots(uint32_t num_open);  // at the verifier, of all sessions
  std::string TakeVerdict(const VerifyBatch::Item& item, v1::VerifyResult& result, double now);
  void OnNoPages(const VerifyBatch::Item& item, const v1::SlotState& state, double now);
  // The verifier refused the sequence in a slot: it ends with `told`, and what the verifier says of
  // it is for the log alone.
  void FailSlot(uint32_t slot_id, const v1::SlotState& state, const absl::Status& told);
  void Commit(uint32_t slot_id, const VerifyBatch::Item& item, v1::VerifyResult& result,
              double now);
  void Complete(uint32_t slot_id, double now);
  void CompareReplay(uint32_t slot_id, const v1::VerifyResult& result);
  void ReleaseDraft(Draft* draft);

  // Audit.
  bool IsAudited(uint64_t number) const;
  void QueueReplay(const Sequence& finished);
  void ReportAlarm();

  WorkerPeer& verifier() { return peers_[kVerifierPeer]; }
  const WorkerPeer& verifier() const { return peers_[kVerifierPeer]; }
  WorkerPeer& drafter() { return peers_[kDrafterPeer]; }
  const WorkerPeer& drafter() const { return peers_[kDrafterPeer]; }
  // Tokens that the worker's next command must bring.
  uint32_t Lack(const WorkerPeer& peer, uint32_t slot_id) const {
    return slots_[slot_id].sequence->committed_len() - peer.slot(slot_id).cached_len;
  }
  // `summary` as of LogLine: for lines with what a worker says (WorkerText).
  void Log(LogLine::Level level, std::string text, std::string summary = {});
  // About the sequence in a slot.
  void LogSlot(LogLine::Level level, uint32_t slot_id, std::string text, std::string summary = {});

  EngineOptions options_;
  const Tokenizer* tokenizer_;
  EngineObserver* observer_;
  EngineCommands commands_;
  Counts counts_;
  WorkerSessions workers_;
  DraftLengthController controller_;
  RequestLedger own_ledger_;
  RequestLedger* ledger_;
  std::vector<WorkerPeer> peers_{kNumPeers};

  std::vector<Slot> slots_;
  std::vector<Cohort> cohorts_;
  uint32_t next_cohort_ = 0;  // the one that is asked first
  std::deque<std::unique_ptr<Sequence>> queue_;
  std::deque<std::unique_ptr<Sequence>> preempted_;  // go before the queue, the oldest first
  std::deque<std::unique_ptr<Sequence>> replays_;    // of the audit: only where nobody else waits
  std::optional<ProposeBatch> propose_;              // under way
  std::optional<VerifyBatch> verify_;

  uint64_t last_serial_ = 0;
  RunningMean decode_seconds_;  // of a Verify without prompts
  double admit_at_ = 0;         // after one that found no page, or no slot, all wait until then
  double verifier_down_since_ = 0;
  bool verifier_up_ = false;
  bool draining_ = false;
  double mean_service_seconds_ = 1.0;  // of finished requests, for the retry hint
  // Of the verifier, 0 and none where it did not say: slots of other routers, as its last reply or
  // pong had them, and free pages as its last pong had them.
  uint32_t num_foreign_slots_ = 0;
  std::optional<uint32_t> reported_free_pages_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_ENGINE_H_
