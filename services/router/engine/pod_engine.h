// The router's logic for one worker pod as a pure state machine: events in, commands and reports
// out. No I/O, no clock, no randomness, one thread.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_POD_ENGINE_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_POD_ENGINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/tokenizer/tokenizer.h"
#include "services/router/engine/engine_options.h"
#include "services/router/engine/pod_room.h"
#include "services/router/engine/rounds/lookup_round.h"
#include "services/router/engine/rounds/round_state.h"

namespace tandem {

// Owns the slots of one pod and the truth about the sequences in them: prompt, committed tokens,
// parameters, seed. Workers hold caches of it, of which the engine knows the length. Each worker is
// always sent tokens [cached_len, committed_len), whatever the reason they are lacking.
//
// A round of a cohort of slots: one Propose batch for the slots that draft, then one Verify batch
// for all (drafted blocks, plain steps and prompt chunks), then commit. A worker has one batch at a
// time. Sequences join and leave between batches. Whatever goes wrong with the drafter, the round
// goes on without its drafts; when the verifier is lost, slots wait, and are rebuilt by the same
// rule. docs/scheduler.md tells more.
//
// Every event has three steps. An event function below *settles* what happened. The owner then
// *fills* free slots (Room, Place) and *sends* the next batches (Send). So a sequence joins the
// batch that is sent in the event that freed its slot. After Send the owner takes the reports and
// the commands.
//
// `now` is seconds on a monotonic clock. NextDeadline says when to call Tick at the latest.
class PodEngine {
 public:
  // `tokenizer`, `observer` and `audit` must outlive it.
  PodEngine(PodId id, const EngineOptions& options, const Tokenizer* tokenizer,
            EngineObserver* observer, AuditMonitor* audit);
  PodEngine(const PodEngine&) = delete;
  PodEngine& operator=(const PodEngine&) = delete;

  // What the verifier must offer, whenever it attaches: the router has promised it to clients.
  void Expect(const v1::AttachReply& promised) { state_.workers.Expect(promised); }

  // Takes up the draft models that are new in the roster, lets go of those that are not in it any
  // more, asks for its heads, and follows it from now on. Before Start it says what the pod begins
  // with.
  void SetRoster(const DraftRoster& roster, double now);

  // Settle.
  void Start(double now);
  void OnDraftReply(SessionId session, v1::DraftReply& reply, double now);
  void OnVerifierReply(SessionId session, v1::VerifierReply& reply, double now);
  // The answer to a SearchCorpus.
  void OnSearched(const SearchCorpus& search, std::vector<CorpusAnswer> answers, double now);
  void OnSessionLost(SessionId session, const std::string& why, double now);
  void OnPong(SessionId session, const v1::WatchPong& pong, double now);
  void Tick(double now);

  // Fill.
  //
  // What the pod could take now.
  PodRoom Room(double now) const;
  // Gives the sequence a slot. A replay of the audit leaves the pod if its slot or its pages are
  // needed. PRECOND: Room().Fits(sequence.committed_len()), or the sequence is a replay and no slot
  // is taken.
  void Place(std::unique_ptr<Sequence> sequence);
  // Takes a client's sequence back. Null: no slot has it.
  std::unique_ptr<Sequence> TakeBack(CallId call);
  // Takes back the clients' sequences that `wants` names.
  std::vector<std::unique_ptr<Sequence>> TakeBackIf(
      const std::function<bool(const Sequence&)>& wants);
  // A pod has reported this prompt. Requests with the same prompt learn of it, unless a verifier
  // has computed their prompt.
  void NotePrompt(const PromptDeaths& prompt);
  // Reports all sequences as finished, with `status`.
  void FinishAll(const absl::Status& status);

  // Send.
  void Send(double now);

  // Gives all sessions up, for good. Replays that run are forgotten. PRECOND: idle().
  void Close();

  EngineCommands TakeCommands() { return std::exchange(state_.out.commands, {}); }
  // Sequences that left their slots, and news of prompts, in order.
  PodReports TakeReports() { return std::exchange(state_.out.reports, {}); }
  // The commands taken have been carried out: a batch among them is under way from now on, so that
  // the time before counts as the router's.
  void OnCommandsSent(double now);
  double NextDeadline() const;
  // When the verifier last answered anything. While no verifier is ready: since when that is so.
  double verifier_seen_at() const { return verifier_seen_at_; }

  // State, for server info, readiness and tests.
  PodId id() const { return id_; }
  const WorkerSessions& workers() const { return state_.workers; }
  // The controller of one draft model, or of none if there is no draft model.
  const DraftLengthController& controller(size_t draft_model = 0) const {
    return state_.draft_models.controller(draft_model);
  }
  // How the requests of the canary fared, and those of the models that serve.
  const SpeedComparison& comparison() const { return state_.draft_models.comparison(); }
  // What the controllers chose last: a mean over the slots.
  DraftLengthController::LastRound last_round() const { return state_.draft_models.last_round(); }
  uint32_t num_slots() const { return state_.slots.size(); }
  // Sequences of clients. Replays of the audit do not count.
  size_t num_running() const { return state_.slots.num_running(); }
  bool idle() const { return num_running() == 0; }
  const Counts& counts() const { return state_.out.counts; }
  Gauges ReadGauges() const;
  // Tests ask for it after each event; Send asserts it.
  const RoundState& state() const { return state_; }

 private:
  // Forgets what a draft model has shown, before its number is used again.
  void ForgetDraftModel(size_t number);
  // The verifier has other heads. What the former ones have shown is forgotten, and running
  // requests go on with the new ones.
  void FollowHeads();
  void FollowHeads(Sequence* sequence);
  // Follows what the sessions tell, in order.
  void DrainSessionEvents(double now);
  void OnVerifierReady(SessionId session);
  void OnCommandRefused(PeerId peer, bool of_batch, const v1::WorkerError& error, double now);
  // A worker that lives, computes nothing and owes an answer has lost the question.
  void CheckOwedAnswer(SessionId session, const v1::WatchPong& pong, double now);
  void Advance(uint32_t cohort, double now);
  bool verifier_up() const { return state_.slots.verifier().session() != 0; }

  const PodId id_;
  RoundState state_;
  double verifier_seen_at_ = 0;
  // Free pages of the verifier as its last pong stated them; none: it stated none.
  std::optional<uint32_t> reported_free_pages_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_POD_ENGINE_H_
