// The router's sessions with its two workers: attaching, checking that they fit, the ring between
// them, coming back.
#ifndef TANDEM_SERVICES_ROUTER_WORKER_SESSIONS_H_
#define TANDEM_SERVICES_ROUTER_WORKER_SESSIONS_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "common/rpc/heartbeat.h"
#include "common/tokenizer/tokenizer.h"
#include "services/router/engine_command.h"
#include "services/router/engine_observer.h"
#include "services/router/ring_credits.h"
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
class WorkerSessions {
 public:
  // `tokenizer` (the target's), `out` and `observer` must outlive it.
  WorkerSessions(const WorkerSessionsOptions& options, const Tokenizer* tokenizer,
                 EngineCommands* out, EngineObserver* observer = NobodyObserves());

  void Start(double now);
  void Tick(double now);
  double NextDeadline() const;  // infinity: none

  // True: the reply was about the session itself. False: it is for the engine, or of an old session
  // (see IsCurrent).
  bool OnDraftReply(SessionId session, const v1::DraftReply& reply, double now);
  bool OnVerifierReply(SessionId session, const v1::VerifierReply& reply, double now);
  // The stream ended. `detail` as of Drop: what gRPC says has the worker's address, or the path of
  // its socket.
  void OnLost(Worker worker, SessionId session, const std::string& detail, double now) {
    Lose(worker, session, SessionChange::kDisconnected, {}, detail, now);
  }
  void OnPong(Worker worker, SessionId session, const v1::WatchPong& pong, double now);
  // What the verifier must offer, whenever it attaches: others do already.
  void Expect(const v1::AttachReply& promised) { promised_ = promised; }
  // Gives both sessions up and opens none any more.
  void Close();
  // The engine found the worker broken: gives the session up and opens a new one later. `detail`:
  // what somebody else says of it (WorkerText), for the log alone.
  void Drop(Worker worker, SessionChange reason, const std::string& why, double now,
            const std::string& detail = {});

  bool ready(Worker worker) const { return link(worker).state == State::kReady; }
  // Changes whenever a worker lost what it held; 0 while it is not ready.
  SessionId ready_session(Worker worker) const { return ready(worker) ? link(worker).session : 0; }
  bool IsCurrent(Worker worker, SessionId session) const {
    return link(worker).session == session && link(worker).state != State::kDown;
  }
  // What the worker said when it last attached; null when it never did.
  const v1::AttachReply* info(Worker worker) const {
    return link(worker).info.has_value() ? &*link(worker).info : nullptr;
  }
  // It was told to stop, and serves what it has until then.
  bool draining(Worker worker) const { return ready(worker) && link(worker).draining; }
  // It answered, and does not fit.
  bool refused(Worker worker) const { return link(worker).refused; }
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

  Link& link(Worker worker) { return worker == Worker::kDrafter ? drafter_ : verifier_; }
  const Link& link(Worker worker) const {
    return worker == Worker::kDrafter ? drafter_ : verifier_;
  }
  void Open(Worker worker, double now);
  void Lose(Worker worker, SessionId session, SessionChange reason, const std::string& why,
            const std::string& detail, double now);
  void StartHeartbeat(Worker worker, double now);
  void CheckHeartbeat(Worker worker, double now);
  void OnBatchDone(Worker worker, double seconds);
  uint64_t SessionToken(SessionId session) const { return options_.first_session_token + session; }
  void GoDown(Worker worker, double pause_seconds, double now);
  // `detail` as of Drop.
  void Complain(Worker worker, const std::string& text, const std::string& detail = {});
  void Incompatible(Worker worker, const std::string& text, double now,
                    const std::string& detail = {});

  void OnVerifierAttached(const v1::AttachReply& reply, double now);
  void OnDrafterAttached(const v1::AttachReply& reply, double now);
  void CheckDrafterVocabulary(double now);
  void OnVocabulary(const v1::VocabularyChunk& chunk, double now);
  void BecomeReady(Worker worker, double now);

  void StartRing(double now);
  void SendCreateRing(const std::optional<v1::CreateRing>& create, const std::string& why);
  void OnRingRefused(Worker worker, const v1::WorkerError& error);
  v1::DraftCommand* ToDrafter();
  v1::VerifierCommand* ToVerifier();

  WorkerSessionsOptions options_;
  const Tokenizer* tokenizer_;
  EngineCommands* out_;
  EngineObserver* observer_;
  SessionId last_session_;
  uint64_t last_command_id_ = 0;
  Link drafter_;
  Link verifier_;
  RingCredits ring_;
  uint64_t ring_command_id_ = 0;  // of the negotiation's step under way
  double ring_asked_at_ = 0;
  std::optional<v1::AttachReply> promised_;
  std::string drafter_name_;
  std::string first_difference_;  // between the vocabularies, while they are read
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_WORKER_SESSIONS_H_
