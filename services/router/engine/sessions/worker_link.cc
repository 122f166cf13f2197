#include "services/router/engine/sessions/worker_link.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

constexpr double kFirstPauseSeconds = 0.05;
constexpr double kLongestPauseSeconds = 1.0;
constexpr double kRefusedPauseSeconds = 5.0;
constexpr double kLongestLoadPauseSeconds = 320.0;

}  // namespace

std::string WithDetail(const std::string& text, const std::string& detail) {
  return detail.empty() ? text : absl::StrCat(text, ": ", detail);
}

std::string SummaryOf(const std::string& text, const std::string& detail) {
  return detail.empty() ? std::string() : text;
}

WorkerLink::WorkerLink(PeerId peer, double heartbeat_timeout_seconds, EngineCommands* out)
    : peer_(peer), out_(out), hang_detector_(heartbeat_timeout_seconds) {}

void WorkerLink::Open(SessionId session, uint64_t token, double attach_deadline,
                      uint32_t draft_worker) {
  state_ = State::kAttaching;
  session_ = session;
  token_ = token;
  retry_at_ = std::numeric_limits<double>::infinity();
  attach_deadline_ = attach_deadline;
  out_->push_back(OpenSession{peer_, session_, draft_worker});
}

void WorkerLink::OnAttached(double now) {
  state_ = State::kAttached;
  attach_deadline_ = std::numeric_limits<double>::infinity();
  hang_detector_.Begin(now);
  out_->push_back(SendPing{KindOf(peer_), session_, token_});
}

void WorkerLink::BecomeReady() {
  state_ = State::kReady;
  pause_seconds_ = refused_pause_seconds_ = 0;
  refused_ = false;
  problem_.clear();
  problem_in_full_.clear();
  last_complaint_.clear();
}

void WorkerLink::SendClose() { out_->push_back(CloseSession{KindOf(peer_), session_}); }

void WorkerLink::OnLost(const std::string& why, const std::string& detail, double now) {
  const std::string what =
      absl::StrCat(PeerName(peer_), ": ", ready() ? "session lost" : "cannot attach");
  Complain(WithDetail(what, why), detail);
  pause_seconds_ = ready()
                       ? kFirstPauseSeconds
                       : std::clamp(2 * pause_seconds_, kFirstPauseSeconds, kLongestPauseSeconds);
  GoDown(now + pause_seconds_);
}

void WorkerLink::OnRefused(bool loads, double now) {
  refused_ = true;
  const double longest = loads ? kLongestLoadPauseSeconds : kRefusedPauseSeconds;
  refused_pause_seconds_ = std::clamp(2 * refused_pause_seconds_, kRefusedPauseSeconds, longest);
  GoDown(now + refused_pause_seconds_);
}

void WorkerLink::LetGo() {
  GoDown(std::numeric_limits<double>::infinity());
  state_ = State::kAbsent;
  pause_seconds_ = refused_pause_seconds_ = 0;
  refused_ = false;
  problem_.clear();
  problem_in_full_.clear();
  last_complaint_.clear();
}

void WorkerLink::GoDown(double retry_at) {
  state_ = State::kDown;
  draining_ = false;
  retry_at_ = retry_at;
  attach_deadline_ = std::numeric_limits<double>::infinity();
  hang_detector_.End();
}

void WorkerLink::Complain(const std::string& problem, const std::string& detail,
                          const std::string& consequence) {
  problem_ = problem;
  problem_in_full_ = WithDetail(problem, detail);
  const std::string text = problem + consequence;
  const std::string complaint = WithDetail(text, detail);
  if (last_complaint_ == complaint) return;
  last_complaint_ = complaint;
  out_->push_back(LogLine{.level = LogLine::Level::kWarning,
                          .text = complaint,
                          .session = session_,
                          .summary = SummaryOf(text, detail)});
}

void WorkerLink::OnPong(const v1::WatchPong& pong, double now) {
  hang_detector_.OnPong(pong, now);
  if (pong.draining() && !draining_) {
    out_->push_back(LogLine{LogLine::Level::kInfo,
                            absl::StrCat(PeerName(peer_), ": drains: it was told to stop")});
  }
  draining_ = pong.draining();
}

std::string WorkerLink::CheckHeartbeat(double now) {
  if (now < hang_detector_.ping_at()) return {};
  std::string why = hang_detector_.Check(now);
  if (why.empty()) out_->push_back(SendPing{KindOf(peer_), session_, token_});
  return why;
}

double WorkerLink::NextDeadline() const {
  return std::min({retry_at_, attach_deadline_, hang_detector_.ping_at()});
}

}  // namespace tandem
