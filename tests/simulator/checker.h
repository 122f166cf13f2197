// Checks the invariants. The checker sees everything that passes between routers, workers and
// clients.
#ifndef TANDEM_TESTS_SIMULATOR_CHECKER_H_
#define TANDEM_TESTS_SIMULATOR_CHECKER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "services/router/fleet/fleet.h"
#include "tests/simulator/scenario/scenario.h"
#include "tests/simulator/sight.h"
#include "tests/simulator/worker/fake_worker.h"

namespace tandem::simulator {

// A broken invariant. docs/testing.md lists them by name.
struct Finding {
  uint64_t seed = 0;
  std::string invariant;
  std::string what;
  double at = 0;
};

using RouterId = uint32_t;

// Knows the scenario's truth. Rebuilds from the messages alone the state that each side must
// believe.
class Checker {
 public:
  // Reasons why a session may behave differently than between honest peers on an honest stream.
  enum Excuse : uint8_t {
    kInterrupted = 1,  // the worker was killed, stopped, stuck or cut off
    kLossy = 2,        // messages were dropped, repeated or late
    kRowsLost = 4,
    kBadReply = 8,
    kMisfit = 16,
  };
  // Returns the slots that a session's worker really has, or null if it has none.
  using Peek = std::function<const FakeSlots*(RouterId, Worker, SessionId)>;

  // `scenario` must outlive the checker.
  Checker(const Scenario* scenario, const testing::ToyTokenizer* tokenizer, Peek peek);

  const std::optional<Finding>& finding() const { return finding_; }
  const Sights& sights() const { return sights_; }
  void See(Sight sight) { sights_.Add(sight); }
  void Fail(const std::string& invariant, const std::string& what);
  void SetTime(double now) { now_ = now; }

  // The world reports each event by one of these functions, in the order of the events.
  void OnRouterStarted(RouterId router);
  void OnRouterDied(RouterId router);
  //   capacity  rows of the verifier's pool, as far as the router knows
  void OnRequest(RouterId router, CallId call, const ClientPlan& plan, uint64_t capacity);
  void OnCancel(CallId call);
  void OnDrain(RouterId router) { routers_[router].draining = true; }
  void OnStop(RouterId router);
  // The draft models that the router is to have from now on.
  void OnRoster(RouterId router, const DraftRoster& roster);
  void OnExcuse(RouterId router, Worker worker, SessionId session, Excuse excuse);
  void OnSessionLost(RouterId router, Worker worker, SessionId session);
  // Called before the router gets the reply.
  void OnReply(RouterId router, SessionId session, const WorkerReply& reply);
  // `commands` are all commands that one event caused.
  void OnCommands(RouterId router, const Fleet& fleet, const EngineCommands& commands);
  // Called after an event and its commands.
  void OnSettled(RouterId router, const Fleet& fleet);
  void OnExecuted(StreamId stream, Worker worker,
                  const std::vector<FakeWorker::Execution>& executed);
  void OnComplaints(RouterId router, Worker worker, SessionId session,
                    const std::vector<std::string>& complaints);
  // A request killed a verifier by a command of this session.
  void OnPoisonDeath(RouterId router, SessionId session, uint64_t command_id,
                     const ClientPlan& plan);

  bool IsOver(CallId call) const;
  size_t num_live_calls() const { return num_live_; }
  std::string LiveCalls() const;
  // Called at the end of the run.
  void OnQuiet(RouterId router, const Fleet& fleet);

 private:
  // A draft that the verifier proposed, and the number of tokens that it continues.
  struct SelfDraft {
    v1::SelfProposal proposal;
    uint32_t after_len = 0;
  };
  struct Call {
    RouterId router = 0;
    ClientPlan plan;  // max_tokens is cut to the tokens that fit, as in the router
    bool finished = false;
    bool canceled = false;
    bool abandoned = false;  // its router died
    bool completed = false;
    bool cannot_fit = false;
    uint32_t emitted = 0;
    uint32_t num_scores = 0;  // log-probabilities of the prompt that were written
    std::string text;
    std::map<v1::TokenSource, int> sources;
    std::set<std::pair<int32_t, int32_t>> successors;  // a token, and a favorite after it
    SelfDraft self_draft;                              // what the last verdict proposed
    // The one before it, if the router may not have believed the last verdict.
    SelfDraft former_self_draft;
    bool non_finite = false;
    bool refused_otherwise = false;  // the verifier refused it with an unexpected code
    int aborts = 0;
    std::set<SessionId> deaths;   // verifiers that died with it since it last made progress
    uint32_t rows_of_deaths = 0;  // rows before the last row of such a batch, at most
    uint32_t furthest = 0;
    std::optional<uint32_t> pod;  // pod of the verifier that has the call, or had it last
    double placed_at = 0;         // when the pod that has it first computed it
    // Roster epoch and pod in which the canary drafted for it; none: it did not.
    std::optional<std::pair<uint64_t, uint32_t>> canary_drafted;
    bool moved = false;  // whether it moved to another pod after its first output
    bool live() const { return !finished && !canceled && !abandoned; }
    uint32_t committed_len() const { return plan.prompt_len() + emitted; }
  };
  // The rows of a slot that a drafter holds, as its replies and the verdicts say.
  struct DraftRows {
    uint32_t committed = 0;
    uint32_t held = 0;
    bool awaits_verdict = false;  // some rows belong to a block that may still be judged
  };
  struct SlotTrack {
    bool seen = false;
    bool closed = false;
    uint32_t epoch = 0;
    uint64_t number = 0;
    CallId call = 0;
    std::optional<DraftRows> rows;  // rows at a drafter; empty if they are not known
  };
  struct BatchItem {
    uint32_t slot;
    CallId call;
    uint32_t begin;
    uint32_t end;
    std::optional<v1::RingReference> ring;
    uint32_t num_drafts;  // drafts that are asked for, or that are judged
    bool sample;
    SessionId drafter;  // session that drafted the judged tokens, or 0
  };
  struct Batch {
    uint64_t id;
    bool is_verify;
    std::vector<BatchItem> items;
  };
  struct Session {
    PeerId peer = kVerifierPeer;
    std::string model;             // that a drafter was asked for
    bool unwanted = false;         // the model is not in the roster any more
    bool loads_heads = false;      // the verifier said so last
    bool has_other_heads = false;  // not those that the verifier began with
    bool drafted = false;          // a draft was asked for, so the router knows that it can draft
    bool open = true;
    uint8_t excuses = 0;
    std::map<uint32_t, SlotTrack> slots;
    std::optional<Batch> batch;
    std::set<uint64_t> answered;  // ids of batches
    // Calls of a batch whose answer may be wrong, with the rows before the last of the batch.
    std::vector<std::pair<CallId, uint32_t>> answered_wrongly;
  };
  struct Proposal {
    SessionId session;
    uint32_t end;
    std::vector<int32_t> token_ids;
    std::vector<int32_t> parents;
    std::optional<v1::RingReference> ring;
  };
  struct RingCredit {
    enum class Holder : uint8_t { kDrafter, kRouter, kVerifier };
    Holder holder;
    uint64_t sequence;
  };
  struct Ring {
    uint64_t epoch = 0;
    uint32_t entries = 0;
    uint64_t last_sequence = 0;
    std::map<uint32_t, RingCredit> credits;
  };
  // A router and one of its pods. The engine between them has its own counts and beliefs.
  struct Pod {
    uint64_t last_command_id = 0;
    SessionId last_session = 0;
    std::map<SessionId, Session> sessions;
    std::map<CallId, Proposal> proposals;
    std::map<PeerId, Ring> rings;          // with each drafter
    std::map<uint64_t, PeerId> new_rings;  // drafters of rings that are asked for, by command
    bool ring_may_fail = false;
    std::vector<double> opened_at;
    uint64_t num_preemptions = 0;
    bool drains = false;  // the router knows that its verifier was told to stop

    // Null: the pod has no ring of this epoch.
    Ring* RingOf(uint64_t epoch) {
      for (auto& [drafter, ring] : rings) {
        if (ring.epoch == epoch && epoch != 0) return &ring;
      }
      return nullptr;
    }
  };
  struct Router {
    bool draining = false;
    bool stopped = false;
    double verifier_seen_at = 0;  // time at which any pod's verifier was last seen
    std::map<uint32_t, Pod> pods;
    std::set<uint64_t> quarantined;  // prompts in quarantine
    // Verifiers that died with a call, whatever became of it, by its prompt.
    std::map<uint64_t, std::set<std::pair<SessionId, CallId>>> deaths;
    uint64_t num_replayed = 0;
    DraftRoster roster;
    double trial_began_at = 0;  // when the canary got its role
    uint64_t roster_epoch = 0;  // grows with each change of the roster, and with each lost drafter

    Pod& PodOfSession(SessionId session) { return pods[PodOf(session)]; }
    // Returns null if the session was never opened.
    Session* Find(SessionId session) {
      Pod& pod = PodOfSession(session);
      const auto found = pod.sessions.find(session);
      return found == pod.sessions.end() ? nullptr : &found->second;
    }
  };

  void OnSend(Router& router, RouterId id, SessionId session_id, Worker worker, uint64_t command_id,
              const v1::DraftCommand* draft, const v1::VerifierCommand* verifier);
  // Sets the call to which the slot belongs. Returns the invariant that the opening breaks, and
  // how, or nothing if it breaks none.
  std::optional<std::pair<std::string, std::string>> CheckOpen(RouterId id, SessionId session_id,
                                                               const Session& session,
                                                               SlotTrack& slot,
                                                               const v1::SlotOpen& open);
  // Returns the call to which the slot belongs, or 0 after a failure.
  CallId CheckPoint(RouterId id, SessionId session_id, Session& session, const v1::SlotPoint& at,
                    const v1::SlotOpen* open);
  void CheckTokens(CallId call, const v1::SlotPoint& at,
                   const google::protobuf::RepeatedField<int32_t>& token_ids);
  void CheckSiblings(CallId call, const v1::ProposeItem& item);
  // Checks that the roster lets the session's model draft for the call.
  void CheckModel(Router& router, SessionId session_id, Session& session, CallId call);
  void CheckPropose(Router& router, RouterId id, SessionId session_id, Session& session,
                    uint64_t command_id, const v1::Propose& propose);
  // Whether a drafter proposed the item's drafts after the call's first `end` tokens.
  static bool IsProposed(const Pod& pod, CallId call_id, const v1::VerifyItem& item, uint32_t end);
  // Whether a router may have found the item's drafts in the call's text.
  bool IsFound(const Call& call, const v1::VerifyItem& item) const;
  // Remembers what a verdict says that drafts may be made of: the target's favorites after
  // committed tokens, and what the verifier proposes.
  static void NoteHints(const BatchItem& item, const v1::VerifyResult& result, bool may_be_wrong,
                        Call* call);
  // Returns whether a draft is part of what the verifier proposed after the call's tokens.
  static bool IsProposedByVerifier(const Call& call, const v1::VerifyItem& item);
  static bool IsOfSelfDraft(const Call& call, const SelfDraft& draft, const v1::VerifyItem& item);
  // Takes the proposal that consists of the item's drafts. Returns the session that made it, or
  // nothing after a failure.
  std::optional<SessionId> TakeProposal(Pod& pod, CallId call_id, const v1::VerifyItem& item,
                                        uint32_t end);
  void CheckVerify(Router& router, RouterId id, SessionId session_id, Session& session,
                   uint64_t command_id, const v1::Verify& verify);
  // `rides` says whether the updates are part of a batch.
  void CheckUpdates(Router& router, RouterId id, SessionId session_id, Session& session,
                    const v1::UpdateSlots& update, bool rides);
  void CheckRollback(Router& router, RouterId id, SessionId session_id, Session& session,
                     const v1::SlotPoint& at, bool rides);
  // Called before a Propose's items. Checks that every slot that needed a rollback got one.
  void CheckNoneIsDue(const Session& session);
  void TakeRingEntry(Ring& ring, const v1::RingReference& reference);
  // Returns whether the call is in a batch that a verifier has.
  static bool IsVerified(const Router& router, CallId call);
  // Returns whether a verifier of the pod has a batch with drafts of this drafter's session for the
  // call.
  static bool IsJudged(const Pod& pod, SessionId drafter, CallId call);
  // Updates the drafter's rows of a block after its verdict. A null `result` means that the batch
  // was lost.
  void SettleRows(Pod& pod, const BatchItem& item, const v1::VerifyResult* result);
  // Called when a verifier of the pod gets a new epoch for the call.
  void SeePlace(const Router& router, uint32_t pod, Call* call);
  void OnProposeReply(Pod& pod, SessionId session_id, Session& session,
                      const v1::ProposeReply& reply);
  void SeePrompt(const BatchItem& item, const v1::VerifyResult& result, const Call& call);
  void OnVerifyReply(Pod& pod, Session& session, const v1::VerifyReply& reply);
  void EndSession(Router& router, SessionId id, Session& session);
  void CheckWrite(const v1::GenerateResponse& response, CallId id);
  // Each prompt token has its log-probabilities once, before the output.
  void CheckScores(const v1::GenerateResponse& response, CallId id, Call* call);
  void CheckCompletion(const v1::Completion& completion, const Call& call);
  void CheckFinish(Router& router, const Fleet& fleet, const FinishCall& finish);
  // Returns why the status has no reason, or an empty text if it has one.
  std::string WhyNot(Router& router, const Fleet& fleet, const FinishCall& finish,
                     const Call& call);
  // A verifier died with the call, which may be over. Its batch had `rows` rows before the last.
  void NoteDeath(Router& router, SessionId session, CallId call, uint32_t rows);
  // A verifier got further with the call than ever.
  void ForgetDeaths(CallId call);
  // Returns the number of verifiers that died with the prompt of the call, and that no request was
  // with that has made progress since.
  size_t NumDeaths(Router& router, CallId call);
  static Sight SightOf(const Router& router, const FinishCall& finish, const Call& call);
  void SeeOverlap(const Pod& pod, Worker other);
  void CheckRing(const Ring& expected, const RingCredits& ring);
  bool Excused(const Session& session, uint8_t excuses) const {
    return (session.excuses & excuses) != 0;
  }

  const Scenario* scenario_;
  const testing::ToyTokenizer* tokenizer_;
  Peek peek_;
  double now_ = kStartTime;
  std::optional<Finding> finding_;
  Sights sights_;
  std::map<RouterId, Router> routers_;
  std::map<CallId, Call> calls_;
  size_t num_live_ = 0;
  std::map<size_t, int> poison_deaths_;  // verifiers that died, by client
  std::map<std::tuple<StreamId, Worker, uint32_t>, std::pair<uint32_t, uint64_t>> executed_;
};

}  // namespace tandem::simulator

#endif  // TANDEM_TESTS_SIMULATOR_CHECKER_H_
