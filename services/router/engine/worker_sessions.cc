#include "services/router/engine/worker_sessions.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/peer_text.h"
#include "common/rpc/protocol.h"
#include "common/rpc/ring_transport.h"
#include "common/status.h"
#include "services/router/engine/worker_text.h"

namespace tandem {
namespace {

constexpr double kFirstPauseSeconds = 0.05;
constexpr double kLongestPauseSeconds = 1.0;
constexpr double kIncompatiblePauseSeconds = 5.0;
constexpr double kLongestBatchSeconds = 3600;  // a worker that says more is not believed
// A hung worker is told from one that is slow by so many of its usual batches.
constexpr double kHungBatches = 10;
constexpr double kStepShare = 0.1;  // of the newest batch in the usual one
constexpr double kMostPatience = 64;

bool Offers(const v1::AttachReply& info, v1::RingTransport transport) {
  return std::find(info.transports().begin(), info.transports().end(), transport) !=
         info.transports().end();
}

// Why these two cannot hand rows over by a transport that both offer; empty: they can try.
std::string WhyNotShared(v1::RingTransport transport, const v1::AttachReply& draft,
                         const v1::AttachReply& target) {
  if (transport == v1::RING_TRANSPORT_INLINE) return {};
  if (draft.boot_id() != target.boot_id()) return "the workers are on two machines";
  if (transport != v1::RING_TRANSPORT_CUDA_IPC) return {};
  // Handles of CUDA mean nothing for another GPU, or in another PID namespace.
  if (draft.device_uuid() != target.device_uuid()) {
    return absl::StrCat("the workers are on two GPUs, ", WorkerText(draft.device_uuid()), " and ",
                        WorkerText(target.device_uuid()));
  }
  if (draft.pid_namespace() != target.pid_namespace()) {
    return "the workers are in two PID namespaces";
  }
  return {};
}

// Of one name, that is. Workers that were not made from files say nothing of them.
bool HaveOtherWeights(const v1::AttachReply& one, const v1::AttachReply& other) {
  return !one.model_fingerprint().empty() && !other.model_fingerprint().empty() &&
         one.model_fingerprint() != other.model_fingerprint();
}

std::string Quoted(const std::string& entry) {
  return absl::StrCat("\"", absl::Utf8SafeCHexEscape(Shortened(entry, kMaxQuotedBytes)), "\"");
}

std::string WithDetail(const std::string& text, const std::string& detail) {
  return detail.empty() ? text : absl::StrCat(text, ": ", detail);
}
// What others than the log's readers may see of that; empty: all.
std::string SummaryOf(const std::string& text, const std::string& detail) {
  return detail.empty() ? std::string() : text;
}

}  // namespace

WorkerSessions::WorkerSessions(const WorkerSessionsOptions& options, const Tokenizer* tokenizer,
                               EngineCommands* out, Counts* counts, EngineObserver* observer)
    : options_(options),
      tokenizer_(tokenizer),
      out_(out),
      counts_(counts),
      observer_(observer),
      last_session_(options.before_first_session) {}

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
  Link& l = links_[peer];
  l.state = State::kAttaching;
  l.session = ++last_session_;
  l.retry_at = std::numeric_limits<double>::infinity();
  l.attach_deadline = now + options_.attach_timeout_seconds;
  out_->push_back(OpenSession{KindOf(peer), l.session});
  v1::Attach attach;
  attach.set_protocol_version(kProtocolVersion);
  attach.set_max_slots(options_.max_slots);
  attach.set_max_draft_length(options_.max_draft_length);
  attach.set_session_token(SessionToken(l.session));
  if (KindOf(peer) == Worker::kDrafter) {
    *ToDrafter()->mutable_attach() = attach;
  } else {
    *ToVerifier()->mutable_attach() = attach;
  }
}

v1::DraftCommand* WorkerSessions::ToDrafter() {
  SendToDrafter& send = std::get<SendToDrafter>(
      out_->emplace_back(SendToDrafter{drafter().session, v1::DraftCommand()}));
  send.command.set_id(NextCommandId());
  return &send.command;
}

v1::VerifierCommand* WorkerSessions::ToVerifier() {
  SendToVerifier& send = std::get<SendToVerifier>(
      out_->emplace_back(SendToVerifier{verifier().session, v1::VerifierCommand()}));
  send.command.set_id(NextCommandId());
  return &send.command;
}

void WorkerSessions::GoDown(PeerId peer, double pause_seconds, double now) {
  Link& l = links_[peer];
  if (l.state == State::kReady) events_.push_back({peer, l.session, false});
  l.state = State::kDown;
  l.draining = false;
  l.attach_deadline = std::numeric_limits<double>::infinity();
  l.ping_at = std::numeric_limits<double>::infinity();
  l.retry_at = now + pause_seconds;
  ring_.Close();
  first_difference_.clear();
}

void WorkerSessions::Complain(PeerId peer, const std::string& text, const std::string& detail) {
  Link& l = links_[peer];
  const std::string complaint = WithDetail(text, detail);
  if (l.last_complaint == complaint) return;
  l.last_complaint = complaint;
  out_->push_back(LogLine{.level = LogLine::Level::kWarning,
                          .text = complaint,
                          .session = l.session,
                          .summary = SummaryOf(text, detail)});
}

void WorkerSessions::Incompatible(PeerId peer, const std::string& text, double now,
                                  const std::string& detail) {
  const bool never_served = peer == kVerifierPeer && !verifier().info.has_value();
  ++counts_->session_changes[KindOf(peer)][SessionChange::kIncompatible];
  out_->push_back(CloseSession{KindOf(peer), links_[peer].session});
  GoDown(peer, kIncompatiblePauseSeconds, now);
  links_[peer].refused = true;
  if (never_served || (peer == kDrafterPeer && options_.drafter_required)) {
    out_->push_back(GiveUp{.status = FailedPrecondition(WithDetail(text, detail)),
                           .summary = SummaryOf(text, detail)});
    return;
  }
  Complain(peer,
           peer == kDrafterPeer ? absl::StrCat(text, "; decoding goes on without drafts") : text,
           detail);
}

void WorkerSessions::Lose(PeerId peer, SessionChange reason, const std::string& why,
                          const std::string& detail, double now) {
  Link& l = links_[peer];
  // A worker that is not there yet is asked for again and again: that is no change.
  if (l.state != State::kAttaching) ++counts_->session_changes[KindOf(peer)][reason];
  l.pause_seconds = l.state == State::kReady
                        ? kFirstPauseSeconds
                        : std::clamp(2 * l.pause_seconds, kFirstPauseSeconds, kLongestPauseSeconds);
  const std::string what = absl::StrCat(
      WorkerName(KindOf(peer)), ": ", l.state == State::kReady ? "session lost" : "cannot attach");
  Complain(peer, WithDetail(what, why), detail);
  GoDown(peer, l.pause_seconds, now);
}

void WorkerSessions::Drop(PeerId peer, SessionChange reason, const std::string& why, double now,
                          const std::string& detail) {
  const SessionId session = links_[peer].session;
  out_->push_back(CloseSession{KindOf(peer), session});
  if (IsCurrent(peer, session)) Lose(peer, reason, why, detail, now);
}

void WorkerSessions::Close() {
  for (PeerId peer = 0; peer < links_.size(); ++peer) {
    Link& l = links_[peer];
    if (l.state != State::kDown && l.state != State::kAbsent) {
      out_->emplace_back(CloseSession{KindOf(peer), l.session});
    }
    l = Link();
  }
  ring_.Close();
}

void WorkerSessions::StartHeartbeat(PeerId peer, double now) {
  Link& l = links_[peer];
  l.heartbeat.Begin(now);
  l.ping_at = now + kPingSeconds;
  out_->push_back(SendPing{KindOf(peer), l.session, SessionToken(l.session)});
}

void WorkerSessions::OnLost(SessionId session, const std::string& detail, double now) {
  const std::optional<PeerId> peer = PeerOf(session);
  if (peer.has_value()) Lose(*peer, SessionChange::kDisconnected, {}, detail, now);
}

void WorkerSessions::OnPong(SessionId session, const v1::WatchPong& pong, double now) {
  const std::optional<PeerId> peer = PeerOf(session);
  if (!peer.has_value()) return;
  Link& l = links_[*peer];
  l.heartbeat.OnPong(pong.progress(), pong.computing(), now);
  if (pong.draining() && !l.draining) {
    out_->push_back(LogLine{LogLine::Level::kInfo, absl::StrCat(WorkerName(KindOf(*peer)),
                                                                ": drains: it was told to stop")});
  }
  l.draining = pong.draining();
}

void WorkerSessions::OnBatchDone(PeerId peer, double seconds) {
  Link& l = links_[peer];
  l.standstill_patience = 1;
  if (!(seconds > 0 && seconds < kLongestBatchSeconds)) return;
  l.step_seconds =
      l.step_seconds == 0 ? seconds : l.step_seconds + kStepShare * (seconds - l.step_seconds);
}

void WorkerSessions::CheckHeartbeat(PeerId peer, double now) {
  Link& l = links_[peer];
  const double limit =
      options_.heartbeat_timeout_seconds > 0
          ? std::max(options_.heartbeat_timeout_seconds, kHungBatches * l.step_seconds)
          : std::numeric_limits<double>::infinity();
  const double standstill_limit = limit * l.standstill_patience;
  switch (l.heartbeat.Check(limit, standstill_limit, now)) {
    case Heartbeat::State::kAlive:
      l.ping_at = now + kPingSeconds;
      out_->push_back(SendPing{KindOf(peer), l.session, SessionToken(l.session)});
      return;
    case Heartbeat::State::kSilent:
      Drop(peer, SessionChange::kHung, absl::StrCat("it hangs: no sign of life for ", limit, " s"),
           now);
      return;
    case Heartbeat::State::kStuck:
      // Should it only be slower than was thought, a second try must not end in the same place.
      l.standstill_patience = std::min(2 * l.standstill_patience, kMostPatience);
      Drop(peer, SessionChange::kHung,
           absl::StrCat("it hangs: computes without progress for ", standstill_limit, " s"), now);
      return;
  }
}

void WorkerSessions::Tick(double now) {
  for (PeerId peer = 0; peer < links_.size(); ++peer) {
    Link& l = links_[peer];
    if (l.state == State::kDown && now >= l.retry_at) Open(peer, now);
    if (now >= l.attach_deadline) {
      Drop(peer, SessionChange::kTimeout,
           absl::StrCat("no answer within ", options_.attach_timeout_seconds, " s"), now);
    }
    if (now >= l.ping_at) CheckHeartbeat(peer, now);
  }
}

double WorkerSessions::NextDeadline() const {
  return std::min({verifier().retry_at, verifier().attach_deadline, verifier().ping_at,
                   drafter().retry_at, drafter().attach_deadline, drafter().ping_at});
}

bool WorkerSessions::drafter_settled() const {
  if (drafter().state == State::kAbsent || drafter().refused) return true;
  return ready(kDrafterPeer) && ready(kVerifierPeer) && !ring_.negotiating();
}

bool WorkerSessions::OnDraftReply(SessionId session, const v1::DraftReply& reply, double now) {
  if (!IsCurrent(kDrafterPeer, session)) return false;
  switch (reply.kind_case()) {
    case v1::DraftReply::kAttach:
      if (drafter().state == State::kAttaching) OnDrafterAttached(reply.attach(), now);
      return true;
    case v1::DraftReply::kVocabulary:
      if (drafter().state == State::kReadingVocabulary) OnVocabulary(reply.vocabulary(), now);
      return true;
    case v1::DraftReply::kOpenRing:
      if (reply.id() == ring_command_id_ && ring_.negotiating() && ready(kVerifierPeer)) {
        const v1::ConfirmRing confirm = ring_.Opened(reply.open_ring());
        v1::VerifierCommand* command = ToVerifier();
        *command->mutable_confirm_ring() = confirm;
        ring_command_id_ = command->id();
      }
      return true;
    case v1::DraftReply::kPropose:
      OnBatchDone(kDrafterPeer, reply.propose().compute_seconds());
      return false;
    case v1::DraftReply::kError:
      if (drafter().state == State::kAttaching || drafter().state == State::kReadingVocabulary) {
        Incompatible(kDrafterPeer, "draft: it refused a command", now,
                     WorkerText(reply.error().message()));
        return true;
      }
      if (ring_.negotiating() && reply.id() == ring_command_id_) {
        OnRingRefused(kDrafterPeer, reply.error());
        return true;
      }
      return false;
    default:
      return false;
  }
}

bool WorkerSessions::OnVerifierReply(SessionId session, const v1::VerifierReply& reply,
                                     double now) {
  if (!IsCurrent(kVerifierPeer, session)) return false;
  const bool of_ring = ring_.negotiating() && reply.id() == ring_command_id_;
  switch (reply.kind_case()) {
    case v1::VerifierReply::kAttach:
      if (verifier().state == State::kAttaching) OnVerifierAttached(reply.attach(), now);
      return true;
    case v1::VerifierReply::kCreateRing:
      if (of_ring && ready(kDrafterPeer)) {
        const v1::OpenRing open = ring_.Created(reply.create_ring());
        v1::DraftCommand* command = ToDrafter();
        *command->mutable_open_ring() = open;
        ring_command_id_ = command->id();
      }
      return true;
    case v1::VerifierReply::kConfirmRing:
      if (of_ring) {
        ring_.Confirmed();
        observer_->OnRingOpened(ring_.transport(), now - ring_asked_at_);
        out_->push_back(
            LogLine{LogLine::Level::kInfo,
                    absl::StrCat("log-prob ring: ", RingTransportName(ring_.transport()))});
      }
      return true;
    case v1::VerifierReply::kVerify:
      OnBatchDone(kVerifierPeer, reply.verify().compute_seconds());
      return false;
    case v1::VerifierReply::kError:
      if (verifier().state == State::kAttaching) {
        Incompatible(kVerifierPeer, "verifier: it refused a command", now,
                     WorkerText(reply.error().message()));
        return true;
      }
      if (of_ring) {
        OnRingRefused(kVerifierPeer, reply.error());
        return true;
      }
      return false;
    default:
      return false;
  }
}

void WorkerSessions::OnVerifierAttached(const v1::AttachReply& reply, double now) {
  if (reply.protocol_version() != kProtocolVersion) {
    Incompatible(kVerifierPeer,
                 absl::StrCat("verifier: speaks protocol version ", reply.protocol_version(),
                              ", this router ", kProtocolVersion, " (use one release)"),
                 now);
    return;
  }
  const auto fingerprint = tokenizer_->Fingerprint();
  if (reply.vocabulary_fingerprint() != std::string(fingerprint.begin(), fingerprint.end())) {
    Incompatible(kVerifierPeer,
                 "verifier: its vocabulary differs from the router's tokenizer.json (router and "
                 "verifier must be given the same folder; check --target)",
                 now);
    return;
  }
  if (reply.vocabulary_size() == 0 || reply.max_context_tokens() < 2 || reply.max_slots() == 0) {
    Incompatible(kVerifierPeer,
                 absl::StrCat("verifier: offers a vocabulary of ", reply.vocabulary_size(), ", ",
                              reply.max_context_tokens(), " context tokens and ", reply.max_slots(),
                              " slots: nothing can be served with that"),
                 now);
    return;
  }
  // Streams that are under way were promised what the first verifier offered.
  if (verifier().info.has_value() &&
      (reply.model() != verifier().info->model() ||
       reply.vocabulary_size() != verifier().info->vocabulary_size() ||
       reply.max_context_tokens() < verifier().info->max_context_tokens() ||
       reply.max_slots() < std::min(options_.max_slots, verifier().info->max_slots()))) {
    Incompatible(kVerifierPeer,
                 absl::StrCat("verifier: came back with model ", reply.model(),
                              ", a vocabulary of ", reply.vocabulary_size(), ", ",
                              reply.max_context_tokens(), " context tokens and ", reply.max_slots(),
                              " slots: another model, or less than before (",
                              verifier().info->model(), ", ", verifier().info->vocabulary_size(),
                              ", ", verifier().info->max_context_tokens(), ", ",
                              verifier().info->max_slots(), ")"),
                 now);
    return;
  }
  if (verifier().info.has_value() && HaveOtherWeights(reply, *verifier().info)) {
    Incompatible(kVerifierPeer,
                 absl::StrCat("verifier: came back with other weights or constants of config.json "
                              "than before, in the name of ",
                              reply.model(), " (start the router again to serve them)"),
                 now);
    return;
  }
  if (promised_.has_value() && (reply.model() != promised_->model() ||
                                reply.vocabulary_size() != promised_->vocabulary_size() ||
                                reply.max_context_tokens() < promised_->max_context_tokens())) {
    Incompatible(
        kVerifierPeer,
        absl::StrCat("verifier: serves model ", reply.model(), " with a vocabulary of ",
                     reply.vocabulary_size(), " and ", reply.max_context_tokens(),
                     " context tokens; the others serve ", promised_->model(), " with ",
                     promised_->vocabulary_size(), " and ", promised_->max_context_tokens(),
                     " (all pods of a router must serve one model, with no less context)"),
        now);
    return;
  }
  if (promised_.has_value() && HaveOtherWeights(reply, *promised_)) {
    Incompatible(
        kVerifierPeer,
        absl::StrCat("verifier: its weights or constants of config.json are not those that "
                     "the others serve as ",
                     promised_->model(),
                     " (streams could not move between the two; give each version of a "
                     "model a name and routers of its own)"),
        now);
    return;
  }
  if (verifier().info.has_value() && reply.numerics_id() != verifier().info->numerics_id()) {
    out_->push_back(
        LogLine{LogLine::Level::kWarning,
                absl::StrCat("verifier: came back with other numerics (", reply.numerics_id(),
                             ", was ", verifier().info->numerics_id(),
                             "): streams under way go on, but not with the very same tokens")});
  }
  std::string known_weights =
      verifier().info.has_value() ? verifier().info->model_fingerprint() : std::string();
  verifier().info = reply;
  // A build that does not say leaves what is known.
  if (reply.model_fingerprint().empty()) {
    verifier().info->set_model_fingerprint(std::move(known_weights));
  }
  StartHeartbeat(kVerifierPeer, now);
  BecomeReady(kVerifierPeer, now);
  if (drafter().state == State::kAttached) CheckDrafterVocabulary(now);
}

void WorkerSessions::OnDrafterAttached(const v1::AttachReply& reply, double now) {
  if (reply.protocol_version() != kProtocolVersion) {
    Incompatible(kDrafterPeer,
                 absl::StrCat("draft: speaks protocol version ", reply.protocol_version(),
                              ", this router ", kProtocolVersion, " (use one release)"),
                 now);
    return;
  }
  drafter().info = reply;
  drafter().attach_deadline = std::numeric_limits<double>::infinity();
  drafter().state = State::kAttached;
  StartHeartbeat(kDrafterPeer, now);
  if (verifier().info.has_value()) CheckDrafterVocabulary(now);
}

void WorkerSessions::CheckDrafterVocabulary(double now) {
  const v1::AttachReply& draft = *drafter().info;
  const v1::AttachReply& target = *verifier().info;
  if (draft.vocabulary_size() == target.vocabulary_size() &&
      draft.vocabulary_fingerprint() == target.vocabulary_fingerprint()) {
    BecomeReady(kDrafterPeer, now);
    return;
  }
  drafter().state = State::kReadingVocabulary;
  first_difference_.clear();
  ToDrafter()->mutable_read_vocabulary();
}

void WorkerSessions::OnVocabulary(const v1::VocabularyChunk& chunk, double now) {
  for (int i = 0; i < chunk.entries_size() && first_difference_.empty(); ++i) {
    const uint64_t id = uint64_t{chunk.first_id()} + static_cast<uint64_t>(i);
    const std::string target(id < tokenizer_->num_entries()
                                 ? tokenizer_->Entry(static_cast<int32_t>(id))
                                 : std::string_view());
    if (chunk.entries(i) == target) continue;
    first_difference_ = absl::StrCat("entry ", id, " is ", Quoted(chunk.entries(i)),
                                     ", the target's is ", Quoted(target));
  }
  if (!chunk.last()) return;
  const uint32_t draft_size = drafter().info->vocabulary_size();
  const uint32_t target_size = verifier().info->vocabulary_size();
  constexpr char kHint[] = " (models must share a tokenizer; check --draft)";
  std::string text;
  if (draft_size != target_size) {
    text = absl::StrCat("draft: vocabulary has ", draft_size, " entries, the target's has ",
                        target_size, kHint,
                        first_difference_.empty() ? "" : "; first difference: ", first_difference_);
  } else if (!first_difference_.empty()) {
    text = absl::StrCat("draft: vocabulary ", first_difference_, kHint);
  } else {
    text = absl::StrCat("draft: vocabulary's fingerprint differs from the target's", kHint);
  }
  Incompatible(kDrafterPeer, text, now);
}

void WorkerSessions::BecomeReady(PeerId peer, double now) {
  Link& l = links_[peer];
  l.state = State::kReady;
  events_.push_back({peer, l.session, true});
  l.attach_deadline = std::numeric_limits<double>::infinity();
  l.pause_seconds = 0;
  l.refused = false;
  l.last_complaint.clear();
  if (peer == kDrafterPeer) drafter_name_ = l.info->model();
  out_->push_back(
      LogLine{LogLine::Level::kInfo,
              absl::StrCat(WorkerName(KindOf(peer)), ": attached, model ", l.info->model(), ", ",
                           l.info->max_context_tokens(), " context tokens, ", l.info->max_slots(),
                           " slots, ", l.info->numerics_id())});
  ++counts_->session_changes[KindOf(peer)][SessionChange::kAttached];
  if (ready(kDrafterPeer) && ready(kVerifierPeer)) StartRing(now);
}

void WorkerSessions::StartRing(double now) {
  ring_asked_at_ = now;
  const v1::AttachReply& draft = *drafter().info;
  const v1::AttachReply& target = *verifier().info;
  std::vector<v1::RingTransport> transports;  // the fastest first
  for (const auto& [choice, transport] :
       {std::pair(TransportChoice::kCudaIpc, v1::RING_TRANSPORT_CUDA_IPC),
        std::pair(TransportChoice::kShm, v1::RING_TRANSPORT_SHM),
        std::pair(TransportChoice::kInline, v1::RING_TRANSPORT_INLINE)}) {
    const bool allowed =
        options_.transport == choice || options_.transport == TransportChoice::kAuto;
    if (!allowed || !Offers(draft, transport) || !Offers(target, transport)) continue;
    const std::string why = WhyNotShared(transport, draft, target);
    if (why.empty()) {
      transports.push_back(transport);
      continue;
    }
    ++counts_->ring_refusals[Worker::kDrafter][transport];
    const std::string summary =
        absl::StrCat("log-prob ring: ", RingTransportName(transport), " is not possible");
    out_->push_back(LogLine{.level = LogLine::Level::kWarning,
                            .text = absl::StrCat(summary, ": ", why),
                            .summary = summary});
  }
  SendCreateRing(ring_.Start({std::min(options_.max_slots, target.max_slots()),
                              options_.max_draft_length, target.vocabulary_size()},
                             std::move(transports)),
                 "the workers have no transport in common");
}

void WorkerSessions::OnRingRefused(PeerId peer, const v1::WorkerError& error) {
  ++counts_->ring_refusals[KindOf(peer)][ring_.transport()];
  const std::string summary =
      absl::StrCat("log-prob ring: ", RingTransportName(ring_.transport()), " refused");
  out_->push_back(LogLine{.level = LogLine::Level::kWarning,
                          .text = absl::StrCat(summary, ": ", WorkerName(KindOf(peer)), ": ",
                                               WorkerText(error.message())),
                          .summary = summary});
  SendCreateRing(ring_.Refused(), "no transport is left");
}

void WorkerSessions::SendCreateRing(const std::optional<v1::CreateRing>& create,
                                    const std::string& why) {
  if (!create.has_value()) {
    out_->push_back(LogLine{LogLine::Level::kWarning,
                            absl::StrCat("log-prob ring: none (", why,
                                         "): only greedy and reproducible requests are drafted")});
    return;
  }
  v1::VerifierCommand* command = ToVerifier();
  *command->mutable_create_ring() = *create;
  ring_command_id_ = command->id();
}

}  // namespace tandem
