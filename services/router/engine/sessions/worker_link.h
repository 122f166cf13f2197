// The connection to one worker: its session, the deadlines, and the last reply to Attach.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_SESSIONS_WORKER_LINK_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_SESSIONS_WORKER_LINK_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "services/router/engine/engine_command.h"
#include "services/router/engine/sessions/hang_detector.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// Joins a text for everybody and a detail for the log alone. An empty detail adds nothing.
std::string WithDetail(const std::string& text, const std::string& detail);
// Returns the summary for the readers who may not see the detail. Empty: they may see everything.
std::string SummaryOf(const std::string& text, const std::string& detail);

// Pure. Commands that concern only the session (open, close, ping) and log lines go to `out`.
class WorkerLink {
 public:
  // kAbsent: no session is wanted. kAttached is a state of the drafter only: it waits until the
  // vocabulary of a verifier is known. kReadingVocabulary: the drafter does not fit, and its
  // vocabulary is read to name the first difference.
  enum class State : uint8_t { kAbsent, kDown, kAttaching, kAttached, kReadingVocabulary, kReady };

  // `out` must outlive the link.
  WorkerLink(PeerId peer, double heartbeat_timeout_seconds, EngineCommands* out);

  // Opens a session with a draft worker (see OpenSession). `token` is its Attach.session_token. The
  // caller sends Attach, and the worker must answer by `attach_deadline`.
  void Open(SessionId session, uint64_t token, double attach_deadline, uint32_t draft_worker = 0);
  // The worker answered Attach: pings it from now on.
  void OnAttached(double now);
  void ReadVocabulary() { state_ = State::kReadingVocabulary; }
  void BecomeReady();
  // Tells the adapter to close the session. The state does not change.
  void SendClose();
  // The session was lost. Complains, and opens again after a pause, which doubles with each failure
  // in a row.
  void OnLost(const std::string& why, const std::string& detail, double now);
  // The worker answered and does not fit. Opens again after a long pause. `loads`: the worker had
  // to load the model first, so the pause doubles each time.
  void OnRefused(bool loads, double now);
  // No session is wanted any more.
  void LetGo();
  // Logs a warning about a problem, unless the last complaint was the same. `detail` as in
  // WorkerSessions::Drop. `consequence` says in the log how the router goes on.
  void Complain(const std::string& problem, const std::string& detail,
                const std::string& consequence = "");

  void OnPong(const v1::WatchPong& pong, double now);
  void OnBatchDone(double seconds) { hang_detector_.OnBatchDone(seconds); }
  // Pings the worker if that is due. Returns why the worker counts as hung; empty: it does not.
  std::string CheckHeartbeat(double now);

  State state() const { return state_; }
  bool ready() const { return state_ == State::kReady; }
  SessionId session() const { return session_; }
  bool refused() const { return refused_; }
  bool draining() const { return draining_; }
  // Why the worker is not attached, in words for clients. Empty: it is, or it was not tried yet.
  const std::string& problem() const { return problem_; }
  // The same for the operator: it may name paths and addresses.
  const std::string& problem_in_full() const { return problem_in_full_; }
  bool ShouldOpen(double now) const { return state_ == State::kDown && now >= retry_at_; }
  bool AttachIsLate(double now) const { return now >= attach_deadline_; }
  double NextDeadline() const;
  // The worker's last reply to Attach that was accepted.
  const std::optional<v1::AttachReply>& info() const { return info_; }
  void SetInfo(const v1::AttachReply& reply) { info_ = reply; }

 private:
  void GoDown(double retry_at);

  PeerId peer_;
  EngineCommands* out_;
  State state_ = State::kAbsent;
  SessionId session_ = 0;
  uint64_t token_ = 0;
  double retry_at_ = std::numeric_limits<double>::infinity();
  double attach_deadline_ = std::numeric_limits<double>::infinity();
  double pause_seconds_ = 0;
  double refused_pause_seconds_ = 0;
  HangDetector hang_detector_;
  bool refused_ = false;   // the worker answered, and does not fit
  bool draining_ = false;  // the worker was told to stop in this session
  std::string problem_;
  std::string problem_in_full_;
  std::string last_complaint_;  // complaint that was logged last; not logged with every attempt
  std::optional<v1::AttachReply> info_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_SESSIONS_WORKER_LINK_H_
