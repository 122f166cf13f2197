#include "services/router/worker_sessions.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/peer_text.h"
#include "common/rpc/protocol.h"
#include "common/rpc/ring_transport.h"
#include "common/status.h"
#include "services/router/worker_text.h"

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
                               EngineCommands* out, EngineObserver* observer)
    : options_(options),
      tokenizer_(tokenizer),
      out_(out),
      observer_(observer),
      last_session_(options.before_first_session) {}

void WorkerSessions::Start(double now) {
  Open(Worker::kVerifier, now);
  if (options_.has_drafter) Open(Worker::kDrafter, now);
}

void WorkerSessions::Open(Worker worker, double now) {
  Link& l = link(worker);
  l.state = State::kAttaching;
  l.session = ++last_session_;
  l.retry_at = std::numeric_limits<double>::infinity();
  l.attach_deadline = now + options_.attach_timeout_seconds;
  out_->push_back(OpenSession{worker, l.session});
  v1::Attach attach;
  attach.set_protocol_version(kProtocolVersion);
  attach.set_max_slots(options_.max_slots);
  attach.set_max_draft_length(options_.max_draft_length);
  attach.set_session_token(SessionToken(l.session));
  if (worker == Worker::kDrafter) {
    *ToDrafter()->mutable_attach() = attach;
  } else {
    *ToVerifier()->mutable_attach() = attach;
  }
}

v1::DraftCommand* WorkerSessions::ToDrafter() {
  SendToDrafter& send = std::get<SendToDrafter>(
      out_->emplace_back(SendToDrafter{drafter_.session, v1::DraftCommand()}));
  send.command.set_id(NextCommandId());
  return &send.command;
}

v1::VerifierCommand* WorkerSessions::ToVerifier() {
  SendToVerifier& send = std::get<SendToVerifier>(
      out_->emplace_back(SendToVerifier{verifier_.session, v1::VerifierCommand()}));
  send.command.set_id(NextCommandId());
  return &send.command;
}

void WorkerSessions::GoDown(Worker worker, double pause_seconds, double now) {
  Link& l = link(worker);
  l.state = State::kDown;
  l.draining = false;
  l.attach_deadline = std::numeric_limits<double>::infinity();
  l.ping_at = std::numeric_limits<double>::infinity();
  l.retry_at = now + pause_seconds;
  ring_.Close();
  first_difference_.clear();
}

void WorkerSessions::Complain(Worker worker, const std::string& text, const std::string& detail) {
  Link& l = link(worker);
  const std::string complaint = WithDetail(text, detail);
  if (l.last_complaint == complaint) return;
  l.last_complaint = complaint;
  out_->push_back(LogLine{.level = LogLine::Level::kWarning,
                          .text = complaint,
                          .session = l.session,
                          .summary = SummaryOf(text, detail)});
}

void WorkerSessions::Incompatible(Worker worker, const std::string& text, double now,
                                  const std::string& detail) {
  const bool never_served = worker == Worker::kVerifier && !verifier_.info.has_value();
  observer_->OnSessionChange(worker, SessionChange::kIncompatible);
  out_->push_back(CloseSession{worker, link(worker).session});
  GoDown(worker, kIncompatiblePauseSeconds, now);
  link(worker).refused = true;
  if (never_served || (worker == Worker::kDrafter && options_.drafter_required)) {
    out_->push_back(GiveUp{.status = FailedPrecondition(WithDetail(text, detail)),
                           .summary = SummaryOf(text, detail)});
    return;
  }
  Complain(
      worker,
      worker == Worker::kDrafter ? absl::StrCat(text, "; decoding goes on without drafts") : text,
      detail);
}

void WorkerSessions::Lose(Worker worker, SessionId session, SessionChange reason,
                          const std::string& why, const std::string& detail, double now) {
  if (!IsCurrent(worker, session)) return;
  Link& l = link(worker);
  // A worker that is not there yet is asked for again and again: that is no change.
  if (l.state != State::kAttaching) observer_->OnSessionChange(worker, reason);
  l.pause_seconds = l.state == State::kReady
                        ? kFirstPauseSeconds
                        : std::clamp(2 * l.pause_seconds, kFirstPauseSeconds, kLongestPauseSeconds);
  const std::string what = absl::StrCat(
      WorkerName(worker), ": ", l.state == State::kReady ? "session lost" : "cannot attach");
  Complain(worker, WithDetail(what, why), detail);
  GoDown(worker, l.pause_seconds, now);
}

void WorkerSessions::Drop(Worker worker, SessionChange reason, const std::string& why, double now,
                          const std::string& detail) {
  const SessionId session = link(worker).session;
  out_->push_back(CloseSession{worker, session});
  Lose(worker, session, reason, why, detail, now);
}

void WorkerSessions::Close() {
  for (Worker worker : {Worker::kVerifier, Worker::kDrafter}) {
    Link& l = link(worker);
    if (l.state != State::kDown && l.state != State::kAbsent) {
      out_->push_back(CloseSession{worker, l.session});
    }
    l = Link();
  }
  ring_.Close();
}

void WorkerSessions::StartHeartbeat(Worker worker, double now) {
  Link& l = link(worker);
  l.heartbeat.Begin(now);
  l.ping_at = now + kPingSeconds;
  out_->push_back(SendPing{worker, l.session, SessionToken(l.session)});
}

void WorkerSessions::OnPong(Worker worker, SessionId session, const v1::WatchPong& pong,
                            double now) {
  if (!IsCurrent(worker, session)) return;
  Link& l = link(worker);
  l.heartbeat.OnPong(pong.progress(), pong.computing(), now);
  if (pong.draining() && !l.draining) {
    out_->push_back(LogLine{LogLine::Level::kInfo,
                            absl::StrCat(WorkerName(worker), ": drains: it was told to stop")});
  }
  l.draining = pong.draining();
}

void WorkerSessions::OnBatchDone(Worker worker, double seconds) {
  Link& l = link(worker);
  l.standstill_patience = 1;
  if (!(seconds > 0 && seconds < kLongestBatchSeconds)) return;
  l.step_seconds =
      l.step_seconds == 0 ? seconds : l.step_seconds + kStepShare * (seconds - l.step_seconds);
}

void WorkerSessions::CheckHeartbeat(Worker worker, double now) {
  Link& l = link(worker);
  const double limit =
      options_.heartbeat_timeout_seconds > 0
          ? std::max(options_.heartbeat_timeout_seconds, kHungBatches * l.step_seconds)
          : std::numeric_limits<double>::infinity();
  const double standstill_limit = limit * l.standstill_patience;
  switch (l.heartbeat.Check(limit, standstill_limit, now)) {
    case Heartbeat::State::kAlive:
      l.ping_at = now + kPingSeconds;
      out_->push_back(SendPing{worker, l.session, SessionToken(l.session)});
      return;
    case Heartbeat::State::kSilent:
      Drop(worker, SessionChange::kHung,
           absl::StrCat("it hangs: no sign of life for ", limit, " s"), now);
      return;
    case Heartbeat::State::kStuck:
      // Should it only be slower than was thought, a second try must not end in the same place.
      l.standstill_patience = std::min(2 * l.standstill_patience, kMostPatience);
      Drop(worker, SessionChange::kHung,
           absl::StrCat("it hangs: computes without progress for ", standstill_limit, " s"), now);
      return;
  }
}

void WorkerSessions::Tick(double now) {
  for (Worker worker : {Worker::kVerifier, Worker::kDrafter}) {
    Link& l = link(worker);
    if (l.state == State::kDown && now >= l.retry_at) Open(worker, now);
    if (now >= l.attach_deadline) {
      Drop(worker, SessionChange::kTimeout,
           absl::StrCat("no answer within ", options_.attach_timeout_seconds, " s"), now);
    }
    if (now >= l.ping_at) CheckHeartbeat(worker, now);
  }
}

double WorkerSessions::NextDeadline() const {
  return std::min({verifier_.retry_at, verifier_.attach_deadline, verifier_.ping_at,
                   drafter_.retry_at, drafter_.attach_deadline, drafter_.ping_at});
}

bool WorkerSessions::drafter_settled() const {
  if (drafter_.state == State::kAbsent || drafter_.refused) return true;
  return ready(Worker::kDrafter) && ready(Worker::kVerifier) && !ring_.negotiating();
}

bool WorkerSessions::OnDraftReply(SessionId session, const v1::DraftReply& reply, double now) {
  if (!IsCurrent(Worker::kDrafter, session)) return false;
  switch (reply.kind_case()) {
    case v1::DraftReply::kAttach:
      if (drafter_.state == State::kAttaching) OnDrafterAttached(reply.attach(), now);
      return true;
    case v1::DraftReply::kVocabulary:
      if (drafter_.state == State::kReadingVocabulary) OnVocabulary(reply.vocabulary(), now);
      return true;
    case v1::DraftReply::kOpenRing:
      if (reply.id() == ring_command_id_ && ring_.negotiating() && ready(Worker::kVerifier)) {
        const v1::ConfirmRing confirm = ring_.Opened(reply.open_ring());
        v1::VerifierCommand* command = ToVerifier();
        *command->mutable_confirm_ring() = confirm;
        ring_command_id_ = command->id();
      }
      return true;
    case v1::DraftReply::kPropose:
      OnBatchDone(Worker::kDrafter, reply.propose().compute_seconds());
      return false;
    case v1::DraftReply::kError:
      if (drafter_.state == State::kAttaching || drafter_.state == State::kReadingVocabulary) {
        Incompatible(Worker::kDrafter, "draft: it refused a command", now,
                     WorkerText(reply.error().message()));
        return true;
      }
      if (ring_.negotiating() && reply.id() == ring_command_id_) {
        OnRingRefused(Worker::kDrafter, reply.error());
        return true;
      }
      return false;
    default:
      return false;
  }
}

bool WorkerSessions::OnVerifierReply(SessionId session, const v1::VerifierReply& reply,
                                     double now) {
  if (!IsCurrent(Worker::kVerifier, session)) return false;
  const bool of_ring = ring_.negotiating() && reply.id() == ring_command_id_;
  switch (reply.kind_case()) {
    case v1::VerifierReply::kAttach:
      if (verifier_.state == State::kAttaching) OnVerifierAttached(reply.attach(), now);
      return true;
    case v1::VerifierReply::kCreateRing:
      if (of_ring && ready(Worker::kDrafter)) {
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
      OnBatchDone(Worker::kVerifier, reply.verify().compute_seconds());
      return false;
    case v1::VerifierReply::kError:
      if (verifier_.state == State::kAttaching) {
        Incompatible(Worker::kVerifier, "verifier: it refused a command", now,
                     WorkerText(reply.error().message()));
        return true;
      }
      if (of_ring) {
        OnRingRefused(Worker::kVerifier, reply.error());
        return true;
      }
      return false;
    default:
      return false;
  }
}

void WorkerSessions::OnVerifierAttached(const v1::AttachReply& reply, double now) {
  if (reply.protocol_version() != kProtocolVersion) {
    Incompatible(Worker::kVerifier,
                 absl::StrCat("verifier: speaks protocol version ", reply.protocol_version(),
                              ", this router ", kProtocolVersion, " (use one release)"),
                 now);
    return;
  }
  const auto fingerprint = tokenizer_->Fingerprint();
  if (reply.vocabulary_fingerprint() != std::string(fingerprint.begin(), fingerprint.end())) {
    Incompatible(Worker::kVerifier,
                 "verifier: its vocabulary differs from the router's tokenizer.json (router and "
                 "verifier must be given the same folder; check --target)",
                 now);
    return;
  }
  if (reply.vocabulary_size() == 0 || reply.max_context_tokens() < 2 || reply.max_slots() == 0) {
    Incompatible(Worker::kVerifier,
                 absl::StrCat("verifier: offers a vocabulary of ", reply.vocabulary_size(), ", ",
                              reply.max_context_tokens(), " context tokens and ", reply.max_slots(),
                              " slots: nothing can be served with that"),
                 now);
    return;
  }
  if (promised_.has_value() && (reply.model() != promised_->model() ||
                                reply.vocabulary_size() != promised_->vocabulary_size() ||
                                reply.max_context_tokens() < promised_->max_context_tokens())) {
    Incompatible(
        Worker::kVerifier,
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
        Worker::kVerifier,
        absl::StrCat("verifier: its weights or constants of config.json are not those that "
                     "the others serve as ",
                     promised_->model(),
                     " (streams could not move between the two; give each version of a "
                     "model a name and routers of its own)"),
        now);
    return;
  }
  // Streams that are under way were promised what the first verifier offered.
  if (verifier_.info.has_value() &&
      (reply.model() != verifier_.info->model() ||
       reply.vocabulary_size() != verifier_.info->vocabulary_size() ||
       reply.max_context_tokens() < verifier_.info->max_context_tokens() ||
       reply.max_slots() < std::min(options_.max_slots, verifier_.info->max_slots()))) {
    Incompatible(
        Worker::kVerifier,
        absl::StrCat("verifier: came back with model ", reply.model(), ", a vocabulary of ",
                     reply.vocabulary_size(), ", ", reply.max_context_tokens(),
                     " context tokens and ", reply.max_slots(),
                     " slots: another model, or less than before (", verifier_.info->model(), ", ",
                     verifier_.info->vocabulary_size(), ", ", verifier_.info->max_context_tokens(),
                     ", ", verifier_.info->max_slots(), ")"),
        now);
    return;
  }
  if (verifier_.info.has_value() && HaveOtherWeights(reply, *verifier_.info)) {
    Incompatible(Worker::kVerifier,
                 absl::StrCat("verifier: came back with other weights or constants of config.json "
                              "than before, in the name of ",
                              reply.model(), " (start the router again to serve them)"),
                 now);
    return;
  }
  if (verifier_.info.has_value() && reply.numerics_id() != verifier_.info->numerics_id()) {
    out_->push_back(
        LogLine{LogLine::Level::kWarning,
                absl::StrCat("verifier: came back with other numerics (", reply.numerics_id(),
                             ", was ", verifier_.info->numerics_id(),
                             "): streams under way go on, but not with the very same tokens")});
  }
  std::string known_weights =
      verifier_.info.has_value() ? verifier_.info->model_fingerprint() : std::string();
  verifier_.info = reply;
  // A build that does not say leaves what is known.
  if (reply.model_fingerprint().empty()) {
    verifier_.info->set_model_fingerprint(std::move(known_weights));
  }
  StartHeartbeat(Worker::kVerifier, now);
  BecomeReady(Worker::kVerifier, now);
  if (drafter_.state == State::kAttached) CheckDrafterVocabulary(now);
}

void WorkerSessions::OnDrafterAttached(const v1::AttachReply& reply, double now) {
  if (reply.protocol_version() != kProtocolVersion) {
    Incompatible(Worker::kDrafter,
                 absl::StrCat("draft: speaks protocol version ", reply.protocol_version(),
                              ", this router ", kProtocolVersion, " (use one release)"),
                 now);
    return;
  }
  drafter_.info = reply;
  drafter_.attach_deadline = std::numeric_limits<double>::infinity();
  drafter_.state = State::kAttached;
  StartHeartbeat(Worker::kDrafter, now);
  if (verifier_.info.has_value()) CheckDrafterVocabulary(now);
}

void WorkerSessions::CheckDrafterVocabulary(double now) {
  const v1::AttachReply& draft = *drafter_.info;
  const v1::AttachReply& target = *verifier_.info;
  if (draft.vocabulary_size() == target.vocabulary_size() &&
      draft.vocabulary_fingerprint() == target.vocabulary_fingerprint()) {
    BecomeReady(Worker::kDrafter, now);
    return;
  }
  drafter_.state = State::kReadingVocabulary;
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
  const uint32_t draft_size = drafter_.info->vocabulary_size();
  const uint32_t target_size = verifier_.info->vocabulary_size();
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
  Incompatible(Worker::kDrafter, text, now);
}

void WorkerSessions::BecomeReady(Worker worker, double now) {
  Link& l = link(worker);
  l.state = State::kReady;
  l.attach_deadline = std::numeric_limits<double>::infinity();
  l.pause_seconds = 0;
  l.refused = false;
  l.last_complaint.clear();
  if (worker == Worker::kDrafter) drafter_name_ = l.info->model();
  out_->push_back(LogLine{LogLine::Level::kInfo,
                          absl::StrCat(WorkerName(worker), ": attached, model ", l.info->model(),
                                       ", ", l.info->max_context_tokens(), " context tokens, ",
                                       l.info->max_slots(), " slots, ", l.info->numerics_id())});
  observer_->OnSessionChange(worker, SessionChange::kAttached);
  if (ready(Worker::kDrafter) && ready(Worker::kVerifier)) StartRing(now);
}

void WorkerSessions::StartRing(double now) {
  ring_asked_at_ = now;
  const v1::AttachReply& draft = *drafter_.info;
  const v1::AttachReply& target = *verifier_.info;
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
    observer_->OnRingRefused(Worker::kDrafter, transport);
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

void WorkerSessions::OnRingRefused(Worker worker, const v1::WorkerError& error) {
  observer_->OnRingRefused(worker, ring_.transport());
  const std::string summary =
      absl::StrCat("log-prob ring: ", RingTransportName(ring_.transport()), " refused");
  out_->push_back(LogLine{
      .level = LogLine::Level::kWarning,
      .text = absl::StrCat(summary, ": ", WorkerName(worker), ": ", WorkerText(error.message())),
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
