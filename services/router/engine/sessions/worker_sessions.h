// The sessions of a pod's engine with its workers: attaching, checking that the workers fit, the
// rings between them, and coming back.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_SESSIONS_WORKER_SESSIONS_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_SESSIONS_WORKER_SESSIONS_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/rpc/heartbeat.h"
#include "common/tokenizer/tokenizer.h"
#include "services/router/engine/counts.h"
#include "services/router/engine/engine_command.h"
#include "services/router/engine/engine_observer.h"
#include "services/router/engine/sessions/attach_check.h"
#include "services/router/engine/sessions/heads_swap.h"
#include "services/router/engine/sessions/ring_credits.h"
#include "services/router/engine/sessions/ring_negotiation.h"
#include "services/router/engine/sessions/worker_link.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

struct WorkerSessionsOptions {
  uint32_t num_drafters = 1;      // draft models that a pod begins with, at most kMaxDraftModels
  uint32_t num_places = 0;        // draft models that there may be at once; at least num_drafters
  bool drafter_required = false;  // give up if a drafter that the pod begins with does not fit
  uint32_t max_slots = 32;
  uint32_t max_draft_length = 16;
  uint32_t max_tree_nodes = 16;  // draft tokens of a tree; 0: only chains
  TransportChoice transport = TransportChoice::kAuto;
  double attach_timeout_seconds = 10;
  // The same for a draft worker that must load the model first.
  double load_timeout_seconds = 600;
  // A worker is hung if it gives no sign of life for this time or for ten usual batches, whichever
  // is longer. 0: no worker counts as hung.
  double heartbeat_timeout_seconds = kHeartbeatTimeoutSeconds;
  // Session tokens are this number plus the session's number. The number is chosen at random, so
  // that the tokens of several routers differ.
  uint64_t first_session_token = 1;
  // Session numbers are counted from here. The numbers of one router's engines must differ.
  SessionId before_first_session = 0;
};

// A worker became ready, or a worker that was ready was lost, dropped or closed.
struct SessionEvent {
  PeerId peer = kVerifierPeer;
  SessionId session = 0;  // the session that is ready, or that was ready until now
  bool ready = false;
  bool let_go = false;  // it ended because nobody wants it any more (WorkerSessions::LetGo)
};

// Draft models that there may be at once.
inline uint32_t NumDraftPlaces(const WorkerSessionsOptions& options) {
  return std::max(options.num_drafters, options.num_places);
}

// Pure: replies, losses and the clock come in, commands go out. A worker goes down -> attaching ->
// (drafter: attached, and checking the vocabulary) -> ready. From each of these states it goes back
// to down, and is opened again after a pause. The pause doubles up to a second; after a worker that
// does not fit it is five seconds. The verifier never waits for the drafter.
//
// Once attached, a worker is pinged. The pings keep the session's lease, and the answers tell a
// hung worker from a busy one (HangDetector). A hung worker is lost like a dead one, and attaches
// again when it goes on.
class WorkerSessions {
 public:
  // `tokenizer` (the target's), `out`, `counts` and `observer` must outlive the object. Session
  // changes and refused rings are counted in `counts`.
  WorkerSessions(const WorkerSessionsOptions& options, const Tokenizer* tokenizer,
                 EngineCommands* out, Counts* counts, EngineObserver* observer = NobodyObserves());

  void Start(double now);
  void Tick(double now);
  double NextDeadline() const;  // infinity: there is none

  // Returns true if the reply was about the session itself. Returns false if the reply is for the
  // engine, or if the session is not current (see IsCurrent).
  bool OnDraftReply(SessionId session, const v1::DraftReply& reply, double now);
  bool OnVerifierReply(SessionId session, const v1::VerifierReply& reply, double now);
  // The stream ended. `detail` is for the log alone, as in Drop: gRPC's text has the worker's
  // address, or the path of its socket.
  void OnLost(SessionId session, const std::string& detail, double now);
  void OnPong(SessionId session, const v1::WatchPong& pong, double now);
  // Sets what the verifier must offer when it attaches, because other pods offer it already.
  void Expect(const v1::AttachReply& promised) { promised_ = promised; }
  // Gives all sessions up and opens none any more.
  void Close();
  // Called when the engine found the worker broken. Gives the session up and opens a new one later.
  // `detail` is what somebody else says about the failure (WorkerText), for the log alone.
  void Drop(PeerId peer, SessionChange reason, const std::string& why, double now,
            const std::string& detail = {});
  // Takes a draft model up: the first draft worker loads the model of this name (Attach.model).
  // PRECOND: the peer is absent.
  void TakeUp(PeerId drafter, const std::string& folder, double now);
  // Gives the session with a draft model up for good, and forgets the model.
  void LetGo(PeerId drafter);
  // Says which heads the verifier shall have, see HeadsSwap.
  void WantHeads(const std::optional<std::string>& heads, double now);
  const HeadsSwap& heads() const { return heads_; }
  // Returns true if the verifier has other heads than it had at the last call. info() has them.
  bool TakeHeadsChange() { return std::exchange(heads_changed_, false); }
  // Returns the events since the last call, in order.
  std::vector<SessionEvent> TakeEvents() { return std::exchange(events_, {}); }

  bool ready(PeerId peer) const { return links_[peer].ready(); }
  // Number of the ready session; 0 while the worker is not ready. The number changes whenever the
  // worker lost what it held.
  SessionId ready_session(PeerId peer) const { return ready(peer) ? links_[peer].session() : 0; }
  bool IsCurrent(PeerId peer, SessionId session) const {
    const WorkerLink::State state = links_[peer].state();
    return links_[peer].session() == session && state != WorkerLink::State::kDown &&
           state != WorkerLink::State::kAbsent;
  }
  // The worker's last reply to Attach that was accepted; null if there was none.
  const v1::AttachReply* info(PeerId peer) const {
    return links_[peer].info().has_value() ? &*links_[peer].info() : nullptr;
  }
  // The worker was told to stop, and serves its slots until then.
  bool draining(PeerId peer) const { return ready(peer) && links_[peer].draining(); }
  // The worker answered, and does not fit.
  bool refused(PeerId peer) const { return links_[peer].refused(); }
  // The verifier and the places of draft models. A place without a model is absent.
  uint32_t num_peers() const { return static_cast<uint32_t>(links_.size()); }
  // Name of the draft model that this peer was last found to fit with, attached or not; empty:
  // there was none.
  const std::string& drafter_name(PeerId drafter) const {
    return ends_[DraftModelOf(drafter)].name;
  }
  // Why the drafter is not attached, in words for clients; empty: no reason is known.
  const std::string& drafter_problem(PeerId drafter) const { return links_[drafter].problem(); }
  // The same for the operator.
  const std::string& drafter_problem_in_full(PeerId drafter) const {
    return links_[drafter].problem_in_full();
  }
  // The draft worker has not answered the newest attempt to attach: it may be loading the model.
  bool attaching(PeerId peer) const {
    return links_[peer].state() == WorkerLink::State::kAttaching;
  }
  // Attach.model of the peer. Empty: the peer's worker began with its model.
  const std::string& FolderOf(PeerId peer) const;
  // The peer whose current session has the number, if that is a drafter. None: the session is over.
  std::optional<PeerId> DrafterOf(SessionId session) const;
  // All workers share one count, so that a reply's id can mean one command only.
  uint64_t NextCommandId() { return ++last_command_id_; }

  // The ring between a drafter and the verifier.
  RingCredits& ring(PeerId drafter) { return ends_[DraftModelOf(drafter)].ring.credits(); }
  const RingCredits& ring(PeerId drafter) const {
    return ends_[DraftModelOf(drafter)].ring.credits();
  }
  // Returns true if nothing about drafting is under way: for each drafter, it does not fit, or the
  // negotiation of its ring has ended.
  bool drafters_settled() const;

 private:
  WorkerLink& verifier() { return links_[kVerifierPeer]; }
  const WorkerLink& verifier() const { return links_[kVerifierPeer]; }
  // What belongs to one draft model besides its link.
  struct DrafterEnd {
    RingNegotiation ring;
    VocabularyComparison vocabulary;  // comparison of the drafter's vocabulary while it is read
    std::string name = {};            // as of drafter_name
    std::string folder = {};          // Attach.model
  };
  RingNegotiation& RingOf(PeerId drafter) { return ends_[DraftModelOf(drafter)].ring; }
  // The drafter whose ring's negotiation waits for the answer to this command.
  std::optional<PeerId> NegotiatorOf(uint64_t command_id) const;
  WorkerLink NewLink(PeerId peer) const;
  // Longest time until the peer answers Attach.
  double AttachSeconds(PeerId peer) const;
  // Returns the peer whose current session has the number. None: the session is over.
  std::optional<PeerId> PeerOf(SessionId session) const;
  void Open(PeerId peer, double now);
  void Lose(PeerId peer, SessionChange reason, const std::string& why, const std::string& detail,
            double now);
  // Called before a session ends.
  void NoteEnd(PeerId peer, bool let_go = false);
  // Gives up a worker that does not fit. `detail` as in Drop.
  void Refuse(PeerId peer, const std::string& text, double now, const std::string& detail = {});

  void OnVerifierAttached(const v1::AttachReply& reply, double now);
  void OnDrafterAttached(PeerId drafter, const v1::AttachReply& reply, double now);
  void CheckDrafterVocabulary(PeerId drafter, double now);
  void OnVocabulary(PeerId drafter, const v1::VocabularyChunk& chunk, double now);
  void BecomeReady(PeerId peer, double now);
  void StartRing(PeerId drafter, double now);
  // Asks for the heads if that is due.
  void AskForHeads(double now);
  // Takes what the verifier says of its heads. What breaks the protocol ends its session.
  void NoteHeads(const v1::SelfDrafter& drafter, double now);
  bool OnDrafterRefusal(PeerId drafter, uint64_t command_id, const v1::WorkerError& error,
                        double now);
  bool OnVerifierRefusal(uint64_t command_id, const v1::WorkerError& error, double now);

  void SendCreateRing(PeerId drafter, const std::optional<v1::CreateRing>& create);
  v1::DraftCommand* ToDrafter(PeerId drafter);
  v1::VerifierCommand* ToVerifier();

  const WorkerSessionsOptions options_;
  const Tokenizer* tokenizer_;
  EngineCommands* out_;
  Counts* counts_;
  SessionId last_session_;
  uint64_t last_command_id_ = 0;
  std::vector<WorkerLink> links_;  // one for each peer
  std::vector<DrafterEnd> ends_;   // one for each draft model
  std::optional<v1::AttachReply> promised_;
  HeadsSwap heads_;
  bool heads_changed_ = false;
  std::vector<SessionEvent> events_;
};

// A drafter that the pod began with answered, and does not fit.
inline bool AnyDrafterRefused(const WorkerSessions& workers) {
  for (PeerId drafter = kDrafterPeer; drafter < workers.num_peers(); ++drafter) {
    if (workers.refused(drafter) && workers.FolderOf(drafter).empty()) return true;
  }
  return false;
}

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_SESSIONS_WORKER_SESSIONS_H_
