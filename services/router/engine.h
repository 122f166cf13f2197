// The router's logic as a pure state machine: events in, commands out. No I/O, no clock, no
// randomness, one thread.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/tokenizer/tokenizer.h"
#include "services/router/engine_command.h"
#include "services/router/generation_request.h"
#include "services/router/sequence.h"
#include "services/router/worker_sessions.h"

namespace tandem {

struct EngineOptions {
  WorkerSessionsOptions workers;
  size_t max_queue = 256;
  uint32_t draft_length = 4;  // where a request does not say
  uint32_t step_rows =
      512;  // rows of one batch at a worker: bounds how long others wait for a prompt
  double verifier_timeout_seconds =
      30;  // without a verifier for so long, requests end with UNAVAILABLE
  double drafter_timeout_seconds =
      30;  // a batch that takes longer: the drafter is given up and tried anew
};

// Owns the truth about every request: prompt, committed tokens, parameters, seed. Workers hold
// caches of it, of which it knows the length; each is always sent tokens [cached_len,
// committed_len), whatever the reason they are lacking.
//
// A round: one Propose batch for the slots that draft, then one Verify batch for all (drafted
// blocks, plain steps and prompt chunks), then commit. Requests join and leave between batches.
// Whatever goes wrong with the drafter, the round goes on without its drafts; when the verifier is
// lost, slots wait, and are rebuilt by the same rule.
//
// `now` is seconds on a monotonic clock. After any event, TakeCommands gives what is to be done, in
// order; NextDeadline says when to call Tick at the latest.
class Engine {
 public:
  // `tokenizer` must outlive it.
  Engine(const EngineOptions& options, const Tokenizer* tokenizer);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Events.
  void Start(double now);
  void OnRequest(CallId call, GenerationRequest request, double now);
  void OnCancel(CallId call,
                double now);  // also deadline, disconnect and slow client; the call is forgotten
  void OnDraftReply(SessionId session, v1::DraftReply& reply, double now);
  void OnVerifierReply(SessionId session, v1::VerifierReply& reply, double now);
  void OnSessionLost(Worker worker, SessionId session, const std::string& why, double now);
  void OnPong(Worker worker, SessionId session, const v1::WatchPong& pong, double now) {
    workers_.OnPong(worker, session, pong, now);
  }
  void Tick(double now);
  void Drain();           // refuses new requests; running and queued ones go on
  void Stop(double now);  // ends those too, with UNAVAILABLE

  EngineCommands TakeCommands() { return std::exchange(commands_, {}); }
  // The commands taken have been carried out: a batch among them is under way from now on, so that the time before counts as
  // the router's.
  void OnCommandsSent(double now);
  double NextDeadline() const;

  // State, for server info, readiness and tests.
  const WorkerSessions& workers() const { return workers_; }
  uint32_t num_slots() const { return static_cast<uint32_t>(slots_.size()); }
  size_t num_running() const;
  size_t num_queued() const { return queue_.size(); }
  bool idle() const { return num_running() == 0 && queue_.empty(); }
  bool draining() const { return draining_; }
  uint64_t num_ring_errors() const { return num_ring_errors_; }

 private:
  // What one worker holds of a slot, as far as its replies told.
  struct WorkerSlot {
    uint32_t epoch = 0;           // grows with each life of the slot at this worker
    uint64_t command_number = 0;  // of the last command
    uint32_t cached_len = 0;      // rows of committed tokens
    bool open = false;            // it was told what the request is
  };
  struct Slot {
    std::unique_ptr<Sequence> sequence;
    WorkerSlot verifier;
    WorkerSlot drafter;
  };
  // A block on its way from the drafter to the verifier.
  struct Draft {
    std::vector<int32_t> token_ids;
    std::optional<v1::RingReference> ring;
    uint32_t rows = 0;      // of its tokens that the drafter holds
    SessionId session = 0;  // of the drafter
  };
  struct ProposeBatch {
    struct Item {
      uint32_t slot;
      uint64_t serial;
      uint32_t end;  // cached_len after the committed tokens that were sent
      uint32_t draft_length;
      std::optional<v1::RingReference> ring;
    };
    uint64_t id;
    SessionId session;
    double sent_at;
    std::vector<Item> items;
    SessionId verifier_session = 0;  // whose ring the blocks are in
    bool sent = false;
  };
  struct VerifyBatch {
    struct Item {
      uint32_t slot;
      uint64_t serial;
      uint32_t end;
      bool sample;
      Draft draft;
    };
    uint64_t id;
    SessionId session;
    double sent_at;
    std::vector<Item> items;
    bool sent = false;
  };

  // Sends what there is to send; called at the end of every event.
  void Pump(double now);
  void NoticeLostSessions(double now);
  void AdmitFromQueue(double now);
  bool SendPropose(double now);
  void SendVerify(std::vector<Draft> drafts, double now);
  void SendCloses(Worker worker);
  uint32_t DraftLength(const Slot& slot, uint32_t slot_id) const;
  // The slots with work for `worker` that lack the least first, so that a long prompt does not
  // starve the others.
  std::vector<uint32_t> SlotsByLack(Worker worker) const;
  v1::SlotPoint NextPoint(uint32_t slot_id, WorkerSlot& at_worker);

  void OnCommandRefused(Worker worker, bool of_batch, const v1::WorkerError& error, double now);
  void OnPropose(v1::ProposeReply& reply, double now);
  // An error text when the drafter broke the protocol.
  std::string TakeDraft(const ProposeBatch::Item& item, v1::ProposeResult& result, Draft* draft);
  void ForwardLogProbs(v1::DraftReply& reply, double now);
  void OnVerify(v1::VerifyReply& reply, double now);
  std::string TakeVerdict(const VerifyBatch::Item& item, v1::VerifyResult& result, double now);
  void Commit(uint32_t slot_id, const VerifyBatch::Item& item, v1::VerifyResult& result,
              double now);
  // After ABORTED: what the worker holds is believed as far as it is a prefix that is known here.
  static void Resynchronise(const v1::SlotState& state, const Sequence& sequence,
                            WorkerSlot* at_worker);

  Sequence* Find(uint32_t slot_id, uint64_t serial);
  void FinishSlot(uint32_t slot_id, const absl::Status& status);
  void FreeSlot(uint32_t slot_id);
  void EndEverything(const absl::Status& status);
  void CheckVerifierBudget(double now);
  int RetryMilliseconds() const;
  void Log(LogLine::Level level, std::string text);

  EngineOptions options_;
  const Tokenizer* tokenizer_;
  EngineCommands commands_;
  WorkerSessions workers_;
  SessionId verifier_session_ = 0;  // those whose caches the slots describe
  SessionId drafter_session_ = 0;

  std::vector<Slot> slots_;
  std::deque<std::unique_ptr<Sequence>> queue_;
  std::unordered_set<std::string> request_ids_;  // queued and running
  std::optional<ProposeBatch> propose_;          // under way; at most one of the two is
  std::optional<VerifyBatch> verify_;
  std::vector<v1::SlotClose> drafter_closes_;  // to be told with the next command
  std::vector<v1::SlotClose> verifier_closes_;

  uint64_t last_serial_ = 0;
  uint64_t num_ring_errors_ = 0;
  double verifier_down_since_ = 0;
  bool verifier_up_ = false;
  bool draining_ = false;
  double mean_service_seconds_ = 1.0;  // of finished requests, for the retry hint
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_H_
