#include "services/router/engine/sessions/worker_sessions.h"

#include <algorithm>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/rpc/protocol.h"
#include "common/status.h"
#include "services/router/engine/sessions/worker_text.h"

namespace tandem {
namespace {

using State = WorkerLink::State;

}  // namespace

WorkerSessions::WorkerSessions(const WorkerSessionsOptions& options, const Tokenizer* tokenizer,
                               EngineCommands* out, Counts* counts, EngineObserver* observer)
    : options_(options),
      tokenizer_(tokenizer),
      out_(out),
      counts_(counts),
      last_session_(options.before_first_session),
      ring_({options.transport, options.max_slots, options.max_draft_length}, out, counts,
            observer),
      vocabulary_(tokenizer) {
  for (PeerId peer = 0; peer < kNumPeers; ++peer) links_.push_back(NewLink(peer));
}

WorkerLink WorkerSessions::NewLink(PeerId peer) const {
  return WorkerLink(KindOf(peer), options_.heartbeat_timeout_seconds, out_);
}

void WorkerSessions::Start(double now) {
  Open(kVerifierPeer, now);
  if (options_.has_drafter) Open(kDrafterPeer, now);
}

std::optional<PeerId> WorkerSessions::PeerOf(SessionId session) const {
  for (PeerId peer = 0; peer < links_.size(); ++peer) {
    if (IsCurrent(peer, session)) return peer;
  }
  return std::nullopt;
}

void WorkerSessions::Open(PeerId peer, double now) {
  const SessionId session = ++last_session_;
  const uint64_t token = options_.first_session_token + session;
  links_[peer].Open(session, token, now + options_.attach_timeout_seconds);
  v1::Attach attach;
  attach.set_protocol_version(kProtocolVersion);
  attach.set_max_slots(options_.max_slots);
  attach.set_max_draft_length(options_.max_draft_length);
  attach.set_max_tree_nodes(options_.max_tree_nodes);
  attach.set_session_token(token);
  if (KindOf(peer) == Worker::kDrafter) {
    *ToDrafter()->mutable_attach() = attach;
  } else {
    *ToVerifier()->mutable_attach() = attach;
  }
}

v1::DraftCommand* WorkerSessions::ToDrafter() {
  SendToDrafter& send = std::get<SendToDrafter>(
      out_->emplace_back(SendToDrafter{drafter().session(), v1::DraftCommand()}));
  send.command.set_id(NextCommandId());
  return &send.command;
}

v1::VerifierCommand* WorkerSessions::ToVerifier() {
  SendToVerifier& send = std::get<SendToVerifier>(
      out_->emplace_back(SendToVerifier{verifier().session(), v1::VerifierCommand()}));
  send.command.set_id(NextCommandId());
  return &send.command;
}

void WorkerSessions::NoteEnd(PeerId peer) {
  if (ready(peer)) events_.push_back({peer, links_[peer].session(), false});
  ring_.credits().Close();
}

void WorkerSessions::Refuse(PeerId peer, const std::string& text, double now,
                            const std::string& detail) {
  const bool never_served = peer == kVerifierPeer && !verifier().info().has_value();
  ++counts_->session_changes[KindOf(peer)][SessionChange::kIncompatible];
  NoteEnd(peer);
  links_[peer].SendClose();
  links_[peer].OnRefused(now);
  if (never_served || (peer == kDrafterPeer && options_.drafter_required)) {
    out_->push_back(GiveUp{.status = FailedPrecondition(WithDetail(text, detail)),
                           .summary = SummaryOf(text, detail)});
    return;
  }
  links_[peer].Complain(text, detail,
                        peer == kDrafterPeer ? "; decoding goes on without drafts" : "");
}

void WorkerSessions::Lose(PeerId peer, SessionChange reason, const std::string& why,
                          const std::string& detail, double now) {
  WorkerLink& link = links_[peer];
  // A worker that cannot be reached is tried again and again. This is no change.
  if (link.state() != State::kAttaching) ++counts_->session_changes[KindOf(peer)][reason];
  NoteEnd(peer);
  link.OnLost(why, detail, now);
}

void WorkerSessions::Drop(PeerId peer, SessionChange reason, const std::string& why, double now,
                          const std::string& detail) {
  links_[peer].SendClose();
  if (links_[peer].state() != State::kDown) Lose(peer, reason, why, detail, now);
}

void WorkerSessions::Close() {
  for (PeerId peer = 0; peer < links_.size(); ++peer) {
    WorkerLink& link = links_[peer];
    if (link.state() != State::kDown && link.state() != State::kAbsent) link.SendClose();
    NoteEnd(peer);
    link = NewLink(peer);
  }
}

void WorkerSessions::OnLost(SessionId session, const std::string& detail, double now) {
  const std::optional<PeerId> peer = PeerOf(session);
  if (peer.has_value()) Lose(*peer, SessionChange::kDisconnected, {}, detail, now);
}

void WorkerSessions::OnPong(SessionId session, const v1::WatchPong& pong, double now) {
  const std::optional<PeerId> peer = PeerOf(session);
  if (peer.has_value()) links_[*peer].OnPong(pong, now);
}

void WorkerSessions::Tick(double now) {
  for (PeerId peer = 0; peer < links_.size(); ++peer) {
    WorkerLink& link = links_[peer];
    if (link.ShouldOpen(now)) Open(peer, now);
    if (link.AttachIsLate(now)) {
      Drop(peer, SessionChange::kTimeout,
           absl::StrCat("no answer within ", options_.attach_timeout_seconds, " s"), now);
    }
    const std::string why = link.CheckHeartbeat(now);
    if (!why.empty()) Drop(peer, SessionChange::kHung, why, now);
  }
}

double WorkerSessions::NextDeadline() const {
  return std::min(verifier().NextDeadline(), drafter().NextDeadline());
}

bool WorkerSessions::drafter_settled() const {
  if (drafter().state() == State::kAbsent || drafter().refused()) return true;
  return ready(kDrafterPeer) && ready(kVerifierPeer) && !ring().negotiating();
}

bool WorkerSessions::OnDraftReply(SessionId session, const v1::DraftReply& reply, double now) {
  if (!IsCurrent(kDrafterPeer, session)) return false;
  switch (reply.kind_case()) {
    case v1::DraftReply::kAttach:
      if (drafter().state() == State::kAttaching) OnDrafterAttached(reply.attach(), now);
      return true;
    case v1::DraftReply::kVocabulary:
      if (drafter().state() == State::kReadingVocabulary) OnVocabulary(reply.vocabulary(), now);
      return true;
    case v1::DraftReply::kOpenRing:
      if (ring_.IsUnderWay(reply.id()) && ready(kVerifierPeer)) {
        v1::VerifierCommand* command = ToVerifier();
        *command->mutable_confirm_ring() = ring_.OnOpened(reply.open_ring());
        ring_.Sent(command->id());
      }
      return true;
    case v1::DraftReply::kPropose:
      drafter().OnBatchDone(reply.propose().compute_seconds());
      return false;
    case v1::DraftReply::kError:
      return OnDrafterRefusal(reply.id(), reply.error(), now);
    default:
      return false;
  }
}

bool WorkerSessions::OnDrafterRefusal(uint64_t command_id, const v1::WorkerError& error,
                                      double now) {
  const State state = drafter().state();
  if (state == State::kAttaching || state == State::kReadingVocabulary) {
    Refuse(kDrafterPeer, "draft: the worker refused a command", now, WorkerText(error.message()));
    return true;
  }
  if (!ring_.IsUnderWay(command_id)) return false;
  SendCreateRing(ring_.OnRefused(Worker::kDrafter, error));
  return true;
}

bool WorkerSessions::OnVerifierReply(SessionId session, const v1::VerifierReply& reply,
                                     double now) {
  if (!IsCurrent(kVerifierPeer, session)) return false;
  switch (reply.kind_case()) {
    case v1::VerifierReply::kAttach:
      if (verifier().state() == State::kAttaching) OnVerifierAttached(reply.attach(), now);
      return true;
    case v1::VerifierReply::kCreateRing:
      if (ring_.IsUnderWay(reply.id()) && ready(kDrafterPeer)) {
        v1::DraftCommand* command = ToDrafter();
        *command->mutable_open_ring() = ring_.OnCreated(reply.create_ring());
        ring_.Sent(command->id());
      }
      return true;
    case v1::VerifierReply::kConfirmRing:
      if (ring_.IsUnderWay(reply.id())) ring_.OnConfirmed(now);
      return true;
    case v1::VerifierReply::kVerify:
      verifier().OnBatchDone(reply.verify().compute_seconds());
      return false;
    case v1::VerifierReply::kError:
      return OnVerifierRefusal(reply.id(), reply.error(), now);
    default:
      return false;
  }
}

bool WorkerSessions::OnVerifierRefusal(uint64_t command_id, const v1::WorkerError& error,
                                       double now) {
  if (verifier().state() == State::kAttaching) {
    Refuse(kVerifierPeer, "verifier: the worker refused a command", now,
           WorkerText(error.message()));
    return true;
  }
  if (!ring_.IsUnderWay(command_id)) return false;
  SendCreateRing(ring_.OnRefused(Worker::kVerifier, error));
  return true;
}

void WorkerSessions::OnVerifierAttached(const v1::AttachReply& reply, double now) {
  const v1::AttachReply* before = info(kVerifierPeer);
  const KnownReplies known{before, promised_.has_value() ? &*promised_ : nullptr};
  if (const absl::Status fits = CheckVerifier(reply, *tokenizer_, known, options_.max_slots);
      !fits.ok()) {
    return Refuse(kVerifierPeer, std::string(fits.message()), now);
  }
  if (const std::string warning = OtherNumericsWarning(reply, before); !warning.empty()) {
    out_->push_back(LogLine{LogLine::Level::kWarning, warning});
  }
  v1::AttachReply info = reply;
  // A build that does not state its weights does not change what is known of them.
  if (info.model_fingerprint().empty() && before != nullptr) {
    info.set_model_fingerprint(before->model_fingerprint());
  }
  verifier().SetInfo(info);
  verifier().OnAttached(now);
  BecomeReady(kVerifierPeer, now);
  if (drafter().state() == State::kAttached) CheckDrafterVocabulary(now);
}

void WorkerSessions::OnDrafterAttached(const v1::AttachReply& reply, double now) {
  if (const absl::Status fits = CheckDrafter(reply); !fits.ok()) {
    return Refuse(kDrafterPeer, std::string(fits.message()), now);
  }
  drafter().SetInfo(reply);
  drafter().OnAttached(now);
  if (verifier().info().has_value()) CheckDrafterVocabulary(now);
}

void WorkerSessions::CheckDrafterVocabulary(double now) {
  if (HaveSameVocabulary(*drafter().info(), *verifier().info())) {
    return BecomeReady(kDrafterPeer, now);
  }
  drafter().ReadVocabulary();
  vocabulary_.Begin();
  ToDrafter()->mutable_read_vocabulary();
}

void WorkerSessions::OnVocabulary(const v1::VocabularyChunk& chunk, double now) {
  vocabulary_.Add(chunk);
  if (!chunk.last()) return;
  Refuse(kDrafterPeer, vocabulary_.Verdict(*drafter().info(), *verifier().info()), now);
}

void WorkerSessions::BecomeReady(PeerId peer, double now) {
  WorkerLink& link = links_[peer];
  link.BecomeReady();
  const v1::AttachReply& info = *link.info();
  if (peer == kDrafterPeer) drafter_name_ = info.model();
  out_->push_back(LogLine{LogLine::Level::kInfo,
                          absl::StrCat(WorkerName(KindOf(peer)), ": attached, model ", info.model(),
                                       ", ", info.max_context_tokens(), " context tokens, ",
                                       info.max_slots(), " slots, ", info.numerics_id())});
  ++counts_->session_changes[KindOf(peer)][SessionChange::kAttached];
  events_.push_back({peer, link.session(), true});
  if (ready(kDrafterPeer) && ready(kVerifierPeer)) {
    SendCreateRing(ring_.Start(*drafter().info(), *verifier().info(), now));
  }
}

void WorkerSessions::SendCreateRing(const std::optional<v1::CreateRing>& create) {
  if (!create.has_value()) return;
  v1::VerifierCommand* command = ToVerifier();
  *command->mutable_create_ring() = *create;
  ring_.Sent(command->id());
}

}  // namespace tandem
