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

// What all peers are told when they attach.
v1::Attach AttachWith(const WorkerSessionsOptions& options, uint64_t token) {
  v1::Attach attach;
  attach.set_protocol_version(kProtocolVersion);
  attach.set_max_slots(options.max_slots);
  attach.set_max_draft_length(options.max_draft_length);
  attach.set_max_tree_nodes(options.max_tree_nodes);
  attach.set_session_token(token);
  return attach;
}

// Says for the log what attached.
std::string AttachedText(PeerId peer, const v1::AttachReply& info) {
  return absl::StrCat(PeerName(peer), ": attached, model ", info.model(), ", ",
                      info.max_context_tokens(), " context tokens, ", info.max_slots(), " slots, ",
                      info.numerics_id());
}

}  // namespace

WorkerSessions::WorkerSessions(const WorkerSessionsOptions& options, const Tokenizer* tokenizer,
                               EngineCommands* out, Counts* counts, EngineObserver* observer)
    : options_(options),
      tokenizer_(tokenizer),
      out_(out),
      counts_(counts),
      last_session_(options.before_first_session),
      heads_(options.first_session_token + options.before_first_session, out) {
  links_.push_back(NewLink(kVerifierPeer));
  const RingOptions ring{options.transport, options.max_slots, options.max_draft_length};
  for (uint32_t model = 0; model < NumDraftPlaces(options); ++model) {
    links_.push_back(NewLink(kDrafterPeer + model));
    ends_.push_back(
        {RingNegotiation(ring, out, counts, observer), VocabularyComparison(tokenizer)});
  }
}

WorkerLink WorkerSessions::NewLink(PeerId peer) const {
  return WorkerLink(peer, options_.heartbeat_timeout_seconds, out_);
}

const std::string& WorkerSessions::FolderOf(PeerId peer) const {
  static const std::string kNone;
  return peer == kVerifierPeer ? kNone : ends_[DraftModelOf(peer)].folder;
}

double WorkerSessions::AttachSeconds(PeerId peer) const {
  return FolderOf(peer).empty() ? options_.attach_timeout_seconds : options_.load_timeout_seconds;
}

void WorkerSessions::Start(double now) {
  for (PeerId peer = 0; peer <= options_.num_drafters; ++peer) Open(peer, now);
}

std::optional<PeerId> WorkerSessions::PeerOf(SessionId session) const {
  for (PeerId peer = 0; peer < links_.size(); ++peer) {
    if (IsCurrent(peer, session)) return peer;
  }
  return std::nullopt;
}

std::optional<PeerId> WorkerSessions::DrafterOf(SessionId session) const {
  const std::optional<PeerId> peer = PeerOf(session);
  return peer == kVerifierPeer ? std::nullopt : peer;
}

std::optional<PeerId> WorkerSessions::NegotiatorOf(uint64_t command_id) const {
  for (uint32_t model = 0; model < ends_.size(); ++model) {
    if (ends_[model].ring.IsUnderWay(command_id)) return kDrafterPeer + model;
  }
  return std::nullopt;
}

void WorkerSessions::Open(PeerId peer, double now) {
  const SessionId session = ++last_session_;
  const uint64_t token = options_.first_session_token + session;
  const bool has_own_worker = peer != kVerifierPeer && FolderOf(peer).empty();
  links_[peer].Open(session, token, now + AttachSeconds(peer),
                    has_own_worker ? DraftModelOf(peer) : 0);
  v1::Attach attach = AttachWith(options_, token);
  if (peer != kVerifierPeer) {
    attach.set_draft_model_number(DraftModelOf(peer));
    attach.set_model(FolderOf(peer));
    *ToDrafter(peer)->mutable_attach() = attach;
  } else {
    *ToVerifier()->mutable_attach() = attach;
  }
}

v1::DraftCommand* WorkerSessions::ToDrafter(PeerId drafter) {
  SendToDrafter& send = std::get<SendToDrafter>(
      out_->emplace_back(SendToDrafter{links_[drafter].session(), v1::DraftCommand()}));
  send.command.set_id(NextCommandId());
  return &send.command;
}

v1::VerifierCommand* WorkerSessions::ToVerifier() {
  SendToVerifier& send = std::get<SendToVerifier>(
      out_->emplace_back(SendToVerifier{verifier().session(), v1::VerifierCommand()}));
  send.command.set_id(NextCommandId());
  return &send.command;
}

void WorkerSessions::NoteEnd(PeerId peer, bool let_go) {
  if (ready(peer)) events_.push_back({peer, links_[peer].session(), false, let_go});
  if (peer == kVerifierPeer) heads_.OnLost();
  for (PeerId drafter = kDrafterPeer; drafter < num_peers(); ++drafter) {
    if (peer == kVerifierPeer || peer == drafter) ring(drafter).Close();
  }
}

void WorkerSessions::Refuse(PeerId peer, const std::string& text, double now,
                            const std::string& detail) {
  const bool never_served = peer == kVerifierPeer && !verifier().info().has_value();
  const bool is_required =
      peer != kVerifierPeer && options_.drafter_required && FolderOf(peer).empty();
  ++counts_->session_changes[KindOf(peer)][SessionChange::kIncompatible];
  NoteEnd(peer);
  links_[peer].SendClose();
  links_[peer].OnRefused(!FolderOf(peer).empty(), now);
  if (never_served || is_required) {
    out_->push_back(GiveUp{.status = FailedPrecondition(WithDetail(text, detail)),
                           .summary = SummaryOf(text, detail)});
    return;
  }
  links_[peer].Complain(text, detail,
                        peer == kVerifierPeer    ? ""
                        : FolderOf(peer).empty() ? "; decoding goes on without its drafts"
                                                 : "; the other draft models go on");
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

void WorkerSessions::TakeUp(PeerId drafter, const std::string& folder, double now) {
  ends_[DraftModelOf(drafter)].folder = folder;
  Open(drafter, now);
}

void WorkerSessions::LetGo(PeerId drafter) {
  WorkerLink& link = links_[drafter];
  if (link.state() != State::kDown && link.state() != State::kAbsent) link.SendClose();
  NoteEnd(drafter, /*let_go=*/true);
  if (ready(kVerifierPeer)) {
    ToVerifier()->mutable_drop_ring()->set_draft_model_number(DraftModelOf(drafter));
  }
  link.LetGo();
  ends_[DraftModelOf(drafter)].folder.clear();
  ends_[DraftModelOf(drafter)].name.clear();
}

void WorkerSessions::WantHeads(const std::optional<std::string>& heads, double now) {
  heads_.Want(heads, now);
  AskForHeads(now);
}

void WorkerSessions::AskForHeads(double now) {
  if (!heads_.IsDue(now)) return;
  v1::VerifierCommand* command = ToVerifier();
  *command->mutable_set_heads() = heads_.Ask(command->id());
}

void WorkerSessions::NoteHeads(const v1::SelfDrafter& drafter, double now) {
  if (const absl::Status good = CheckSelfDrafter(drafter); !good.ok()) {
    return Drop(kVerifierPeer, SessionChange::kProtocolError, std::string(good.message()), now);
  }
  v1::AttachReply info = *verifier().info();
  if (!heads_.IsNews(drafter, info.self_drafter())) return;
  *info.mutable_self_drafter() = drafter;
  verifier().SetInfo(info);
  heads_changed_ = true;
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
           absl::StrCat("no answer within ", AttachSeconds(peer), " s"), now);
    }
    const std::string why = link.CheckHeartbeat(now);
    if (!why.empty()) Drop(peer, SessionChange::kHung, why, now);
  }
  AskForHeads(now);
}

double WorkerSessions::NextDeadline() const {
  double deadline = heads_.NextDeadline();
  for (const WorkerLink& link : links_) deadline = std::min(deadline, link.NextDeadline());
  return deadline;
}

bool WorkerSessions::drafters_settled() const {
  for (PeerId drafter = kDrafterPeer; drafter < num_peers(); ++drafter) {
    const WorkerLink& link = links_[drafter];
    const bool comes_later = !FolderOf(drafter).empty();
    if (link.state() == State::kAbsent || link.refused() || comes_later) continue;
    if (!link.ready() || !ready(kVerifierPeer) || ring(drafter).negotiating()) return false;
  }
  return true;
}

bool WorkerSessions::OnDraftReply(SessionId session, const v1::DraftReply& reply, double now) {
  const std::optional<PeerId> drafter = DrafterOf(session);
  if (!drafter.has_value()) return false;
  WorkerLink& link = links_[*drafter];
  switch (reply.kind_case()) {
    case v1::DraftReply::kAttach:
      if (link.state() == State::kAttaching) OnDrafterAttached(*drafter, reply.attach(), now);
      return true;
    case v1::DraftReply::kVocabulary:
      if (link.state() == State::kReadingVocabulary) {
        OnVocabulary(*drafter, reply.vocabulary(), now);
      }
      return true;
    case v1::DraftReply::kOpenRing:
      if (RingOf(*drafter).IsUnderWay(reply.id()) && ready(kVerifierPeer)) {
        v1::VerifierCommand* command = ToVerifier();
        *command->mutable_confirm_ring() = RingOf(*drafter).OnOpened(reply.open_ring());
        RingOf(*drafter).Sent(command->id());
      }
      return true;
    case v1::DraftReply::kPropose:
      link.OnBatchDone(reply.propose().compute_seconds());
      return false;
    case v1::DraftReply::kError:
      return OnDrafterRefusal(*drafter, reply.id(), reply.error(), now);
    default:
      return false;
  }
}

bool WorkerSessions::OnDrafterRefusal(PeerId drafter, uint64_t command_id,
                                      const v1::WorkerError& error, double now) {
  const State state = links_[drafter].state();
  if (state == State::kAttaching || state == State::kReadingVocabulary) {
    const bool loads = state == State::kAttaching && !FolderOf(drafter).empty();
    const std::string what = loads ? ": cannot load " + FolderOf(drafter)
                                   : std::string(": the worker refused a command");
    Refuse(drafter, PeerName(drafter) + what, now, WorkerText(error.message()));
    return true;
  }
  if (!RingOf(drafter).IsUnderWay(command_id)) return false;
  SendCreateRing(drafter, RingOf(drafter).OnRefused(Worker::kDrafter, error));
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
      if (const auto drafter = NegotiatorOf(reply.id()); drafter.has_value() && ready(*drafter)) {
        v1::DraftCommand* command = ToDrafter(*drafter);
        *command->mutable_open_ring() = RingOf(*drafter).OnCreated(reply.create_ring());
        RingOf(*drafter).Sent(command->id());
      }
      return true;
    case v1::VerifierReply::kConfirmRing:
      if (const auto drafter = NegotiatorOf(reply.id()); drafter.has_value()) {
        RingOf(*drafter).OnConfirmed(now);
      }
      return true;
    case v1::VerifierReply::kSetHeads:
      if (!ready(kVerifierPeer)) return true;
      if (heads_.IsAnswer(reply.id())) heads_.OnAnswer(reply.set_heads(), now);
      NoteHeads(reply.set_heads().self_drafter(), now);
      return true;
    case v1::VerifierReply::kVerify:
      verifier().OnBatchDone(reply.verify().compute_seconds());
      if (reply.verify().has_self_drafter() && ready(kVerifierPeer)) {
        NoteHeads(reply.verify().self_drafter(), now);
      }
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
  if (heads_.IsAnswer(command_id)) {
    heads_.OnRefused(WorkerText(error.message()));
    return true;
  }
  const std::optional<PeerId> drafter = NegotiatorOf(command_id);
  if (!drafter.has_value()) return false;
  SendCreateRing(*drafter, RingOf(*drafter).OnRefused(Worker::kVerifier, error));
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
  const v1::SelfDrafter& heads = info.self_drafter();
  if (before != nullptr && !AreSameHeads(heads, before->self_drafter())) heads_changed_ = true;
  verifier().SetInfo(info);
  verifier().OnAttached(now);
  BecomeReady(kVerifierPeer, now);
  heads_.OnAttached(now);
  AskForHeads(now);
  for (PeerId drafter = kDrafterPeer; drafter < num_peers(); ++drafter) {
    if (links_[drafter].state() == State::kAttached) CheckDrafterVocabulary(drafter, now);
  }
}

void WorkerSessions::OnDrafterAttached(PeerId drafter, const v1::AttachReply& reply, double now) {
  if (const absl::Status fits = CheckDrafter(reply); !fits.ok()) {
    return Refuse(drafter, std::string(fits.message()), now);
  }
  links_[drafter].SetInfo(reply);
  links_[drafter].OnAttached(now);
  if (verifier().info().has_value()) CheckDrafterVocabulary(drafter, now);
}

void WorkerSessions::CheckDrafterVocabulary(PeerId drafter, double now) {
  WorkerLink& link = links_[drafter];
  if (HaveSameVocabulary(*link.info(), *verifier().info())) return BecomeReady(drafter, now);
  link.ReadVocabulary();
  ends_[DraftModelOf(drafter)].vocabulary.Begin();
  ToDrafter(drafter)->mutable_read_vocabulary();
}

void WorkerSessions::OnVocabulary(PeerId drafter, const v1::VocabularyChunk& chunk, double now) {
  VocabularyComparison& vocabulary = ends_[DraftModelOf(drafter)].vocabulary;
  vocabulary.Add(chunk);
  if (!chunk.last()) return;
  Refuse(drafter, vocabulary.Verdict(*links_[drafter].info(), *verifier().info()), now);
}

void WorkerSessions::BecomeReady(PeerId peer, double now) {
  WorkerLink& link = links_[peer];
  link.BecomeReady();
  const v1::AttachReply& info = *link.info();
  if (peer != kVerifierPeer) ends_[DraftModelOf(peer)].name = info.model();
  out_->push_back(LogLine{LogLine::Level::kInfo, AttachedText(peer, info)});
  ++counts_->session_changes[KindOf(peer)][SessionChange::kAttached];
  events_.push_back({.peer = peer, .session = link.session(), .ready = true});
  for (PeerId drafter = kDrafterPeer; drafter < num_peers(); ++drafter) {
    if (peer == kVerifierPeer || peer == drafter) StartRing(drafter, now);
  }
}

void WorkerSessions::StartRing(PeerId drafter, double now) {
  if (!ready(drafter) || !ready(kVerifierPeer)) return;
  SendCreateRing(drafter, RingOf(drafter).Start(*links_[drafter].info(), *verifier().info(), now));
}

void WorkerSessions::SendCreateRing(PeerId drafter, const std::optional<v1::CreateRing>& create) {
  if (!create.has_value()) return;
  v1::VerifierCommand* command = ToVerifier();
  *command->mutable_create_ring() = *create;
  command->mutable_create_ring()->set_draft_model_number(DraftModelOf(drafter));
  RingOf(drafter).Sent(command->id());
}

}  // namespace tandem
