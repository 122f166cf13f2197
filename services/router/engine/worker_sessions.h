// The router's sessions with its two workers: attaching, checking that they fit, the ring between
// them, coming back.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_WORKER_SESSIONS_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_WORKER_SESSIONS_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/rpc/heartbeat.h"
#include "common/tokenizer/tokenizer.h"
#include "services/router/engine/counts.h"
#include "services/router/engine/engine_command.h"
#include "services/router/engine/engine_observer.h"
#include "services/router/engine/ring_credits.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

enum class TransportChoice : uint8_t { kAuto, kCudaIpc, kShm, kInline };

struct WorkerSessionsOptions {
  bool has_drafter = true;
  bool drafter_required = false;  // give up when it does not fit
  uint32_t max_slots = 32;
  uint32_t max_draft_length = 16;
  TransportChoice transport = TransportChoice::kAuto;
  double attach_timeout_seconds = 10;
  // A worker that gives no sign of life for so long, or for ten times its usual batch, is hung; 0:
  // never.
  double heartbeat_timeout_seconds = kHeartbeatTimeoutSeconds;
  // Session tokens grow from here: at random, so that those of several routers differ.
  uint64_t first_session_token = 1;
  // Sessions are counted from here: those of one router's engines must differ.
  SessionId before_first_session = 0;
};

// Pure: replies, losses and the clock come in, commands go out. One worker goes down -> attaching
// -> (drafter: checking the vocabulary) -> ready and from anywhere back to down, to be opened again
// after a pause that doubles up to a second (an incompatible one: five). The verifier never waits
// for the drafter.
//
// Once attached, a worker is pinged: that keeps the session's lease, and its answers tell a hung
// worker from a busy one (Heartbeat). A hung one is lost like a dead one, and attaches again when
// it goes on.
struct SessionEvent {
  PeerId peer = 0;
  SessionId session = 0;
  bool ready = false;
};

class WorkerSessions {
 public:
  std::vector<SessionEvent> TakeEvents() { return std::exchange(events_, {}); }
  // `tokenizer` (the target's), `out`, `counts` and `observer` must outlive it. Session changes and
  // refused rings are counted in `counts`.
  WorkerSessions(const WorkerSessionsOptions& options, const Tokenizer* tokenizer,
                 EngineCommands* out, Counts* counts, EngineObserver* observer = NobodyObserves());

  void Start(double now);
  void Tick(double now);
  double NextDeadline() const;  // infinity: none

  // True: the reply was about the session itself. False: it is for the engine, or of an old session
  // (see IsCurrent).
  bool OnDraftReply(SessionId session, const v1::DraftReply& reply, double now);
  bool OnVerifierReply(SessionId session, const v1::VerifierReply& reply, double now);
  // The stream ended. `detail` as of Drop: what gRPC says has the worker's address, or the path of
  // its socket.
  void OnLost(SessionId session, const std::string& detail, double now);
  void OnPong(SessionId session, const v1::WatchPong& pong, double now);
  // What the verifier must offer, whenever it attaches: others do already.
  void Expect(const v1::AttachReply& promised) { promised_ = promised; }
  // Gives both sessions up and opens none any more.
  void Close();
  // The engine found the worker broken: gives the session up and opens a new one later. `detail`:
  // what somebody else says of it (WorkerText), for the log alone.
  void Drop(PeerId peer, SessionChange reason, const std::string& why, double now,
            const std::string& detail = {});

  bool ready(PeerId peer) const { return links_[peer].state == State::kReady; }
  // Changes whenever a worker lost what it held; 0 while it is not ready.
  SessionId ready_session(PeerId peer) const { return ready(peer) ? links_[peer].session : 0; }
  bool IsCurrent(PeerId peer, SessionId session) const {
    return links_[peer].session == session && links_[peer].state != State::kDown;
  }
  // What the worker said when it last attached; null when it never did.
  const v1::AttachReply* info(PeerId peer) const {
    return links_[peer].info.has_value() ? &*links_[peer].info : nullptr;
  }
  // The worker was told to stop, and serves what it has until then.
  bool draining(PeerId peer) const { return ready(peer) && links_[peer].draining; }
  // The worker answered, and does not fit.
  bool refused(PeerId peer) const { return links_[peer].refused; }
  // Of the drafter that was last found to fit, attached or not; empty: there was none.
  const std::string& drafter_name() const { return drafter_name_; }
  // One count for both workers, so that a reply's id can mean one command only.
  uint64_t NextCommandId() { return ++last_command_id_; }

  RingCredits& ring() { return ring_; }
  const RingCredits& ring() const { return ring_; }
  // Nothing about drafting is still under way: there is no drafter, it does not fit, or its ring is
  // negotiated.
  bool drafter_settled() const;

 private:
  enum class State : uint8_t { kAbsent, kDown, kAttaching, kAttached, kReadingVocabulary, kReady };
  struct Link {
    State state = State::kAbsent;
    SessionId session = 0;
    double retry_at = std::numeric_limits<double>::infinity();
    double attach_deadline = std::numeric_limits<double>::infinity();
    double pause_seconds = 0;
    double ping_at = std::numeric_limits<double>::infinity();
    Heartbeat heartbeat;
    double step_seconds = 0;  // that a batch usually takes, as the worker says
    double standstill_patience =
        1;                       // doubles with every verdict of standstill, until a batch is done
    bool refused = false;        // it answered, and does not fit
    bool draining = false;       // of this session
    std::string last_complaint;  // said once, not with every attempt
    std::optional<v1::AttachReply> info;
  };

  Link& verifier() { return links_[kVerifierPeer]; }
  const Link& verifier() const { return links_[kVerifierPeer]; }
  Link& drafter() { return links_[kDrafterPeer]; }
  const Link& drafter() const { return links_[kDrafterPeer]; }
  // The peer whose current session that is; none: the session is over.
  std::optional<PeerId> PeerOf(SessionId session) const;
  void Open(PeerId peer, double now);
  void Lose(PeerId peer, SessionChange reason, const std::string& why, const std::string& detail,
            double now);
  void StartHeartbeat(PeerId peer, double now);
  void CheckHeartbeat(PeerId peer, double now);
  void OnBatchDone(PeerId peer, double seconds);
  uint64_t SessionToken(SessionId session) const { return options_.first_session_token + session; }
  void GoDown(PeerId peer, double pause_seconds, double now);
  // `detail` as of Drop.
  void Complain(PeerId peer, const std::string& text, const std::string& detail = {});
  void Incompatible(PeerId peer, const std::string& text, double now,
                    const std::string& detail = {});

  void OnVerifierAttached(const v1::AttachReply& reply, double now);
  void OnDrafterAttached(const v1::AttachReply& reply, double now);
  void CheckDrafterVocabulary(double now);
  void OnVocabulary(const v1::VocabularyChunk& chunk, double now);
  void BecomeReady(PeerId peer, double now);

  void StartRing(double now);
  void SendCreateRing(const std::optional<v1::CreateRing>& create, const std::string& why);
  void OnRingRefused(PeerId peer, const v1::WorkerError& error);
  v1::DraftCommand* ToDrafter();
  v1::VerifierCommand* ToVerifier();

  WorkerSessionsOptions options_;
  const Tokenizer* tokenizer_;
  EngineCommands* out_;
  Counts* counts_;
  EngineObserver* observer_;
  SessionId last_session_;
  std::vector<SessionEvent> events_;
  uint64_t last_command_id_ = 0;
  std::vector<Link> links_{kNumPeers};
  RingCredits ring_;
  uint64_t ring_command_id_ = 0;  // of the negotiation's step under way
  double ring_asked_at_ = 0;
  std::optional<v1::AttachReply> promised_;
  std::string drafter_name_;
  std::string first_difference_;  // between the vocabularies, while they are read
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_WORKER_SESSIONS_H_
