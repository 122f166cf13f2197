#include "services/router/engine/engine.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/peer_text.h"
#include "common/status.h"
#include "services/router/engine/sessions/worker_text.h"

namespace tandem {
namespace {

constexpr size_t kMaxReplays = 64;
constexpr size_t kMaxQuarantined = 64;
constexpr double kQuarantineSeconds = 600;
// Replays are the youngest of all.
constexpr uint64_t kReplayOrder = uint64_t{1} << 63;
constexpr char kWrongAnswer[] = "it answered a command with something else";

double Bounded(double seconds, double limit) {
  return seconds > 0 ? std::min(seconds, limit) : 0.0;  // not a number: 0
}

// What a worker says that a batch took, as far as that can be: no longer than since the event that
// the batch follows from. It may be longer than since the batch was known to be sent: where cores
// are few, a worker takes the router's as soon as it has the batch.
template <typename Reply>
void BoundTimes(double longest, Reply* reply) {
  reply->set_compute_seconds(Bounded(reply->compute_seconds(), longest));
  reply->set_transfer_seconds(Bounded(reply->transfer_seconds(), longest));
}

DraftLengthOptions ControllerOptions(const EngineOptions& options) {
  DraftLengthOptions controller;
  controller.max_length = options.workers.max_draft_length;
  controller.initial_length = std::min(controller.initial_length, controller.max_length);
  return controller;
}

}  // namespace

Engine::Engine(const EngineOptions& options, const Tokenizer* tokenizer, EngineObserver* observer,
               RequestLedger* ledger)
    : options_(options),
      tokenizer_(tokenizer),
      observer_(observer),
      workers_(options.workers, tokenizer, &commands_, &counts_, observer),
      controller_(ControllerOptions(options)),
      ledger_(ledger != nullptr ? ledger : &own_ledger_),
      cohorts_(options.num_cohorts) {}

void Engine::Log(LogLine::Level level, std::string text, std::string summary) {
  commands_.push_back(
      LogLine{.level = level, .text = std::move(text), .summary = std::move(summary)});
}

void Engine::LogSlot(LogLine::Level level, uint32_t slot_id, std::string text,
                     std::string summary) {
  commands_.push_back(LogLine{.level = level,
                              .text = std::move(text),
                              .request_id = slots_[slot_id].sequence->request.request_id,
                              .slot = slot_id,
                              .epoch = verifier().slot(slot_id).epoch,
                              .summary = std::move(summary)});
}

// ---------------------------------------------------------------- events

void Engine::Start(double now) {
  verifier_down_since_ = now;
  workers_.Start(now);
}

void Engine::OnRequest(CallId call, GenerationRequest request, double now) {
  if (const std::optional<Refusal> refusal = RefusesAll(now)) {
    commands_.push_back(FinishCall{call, refusal->status, 0, refusal->retry_milliseconds});
    return;
  }
  std::unique_ptr<Sequence> sequence = Accept(call, std::move(request), now);
  if (sequence == nullptr) return;
  queue_.push_back(std::move(sequence));
  Pump(now);
  if (queue_.size() > options_.max_queue) {
    ledger_->request_ids.erase(queue_.back()->request.request_id);
    queue_.pop_back();
    const Refusal refusal = QueueIsFull();
    commands_.push_back(FinishCall{call, refusal.status, 0, refusal.retry_milliseconds});
  }
}

std::unique_ptr<Sequence> Engine::Accept(CallId call, GenerationRequest request, double now) {
  absl::Status refused;
  const auto is_quarantined = [&] {
    const auto& quarantine = ledger_->quarantine;
    if (quarantine.empty()) return false;
    const uint64_t hash = HashTokens(request.prompt_token_ids);
    return std::any_of(quarantine.begin(), quarantine.end(), [&](const auto& entry) {
      return entry.first == hash && now < entry.second;
    });
  };
  if (ledger_->request_ids.count(request.request_id) > 0) {
    refused = absl::AlreadyExistsError(
        absl::StrCat("request_id: ", QuotedShort(request.request_id),
                     " is running; allowed: one that is not, or empty for a new one"));
  } else if (is_quarantined()) {
    refused = FailedPrecondition(
        absl::StrCat("quarantined: the verifier died ", options_.max_lost_rounds,
                     " times in a row while computing this prompt; it is refused for ",
                     kQuarantineSeconds, " s"));
  } else if (const PageBudget& pages = verifier().pages(); pages.limited()) {
    const uint64_t capacity = pages.capacity();
    if (request.prompt_token_ids.size() + 1 > capacity) {
      refused = ResourceExhausted(absl::StrCat(
          "prompt: ", request.prompt_token_ids.size(), " tokens; allowed: ", capacity - 1,
          ", which is what the KV cache holds with one token more (--kv-cache-bytes)"));
    } else {
      request.max_tokens = static_cast<int32_t>(
          std::min<uint64_t>(request.max_tokens, capacity - request.prompt_token_ids.size()));
    }
  }
  if (!refused.ok()) {
    commands_.push_back(FinishCall{call, refused, 0, 0});
    return nullptr;
  }
  request.open.set_audit(request.needs_draft_log_probs() && !request.seed_given &&
                         request.open.lenience() == 1 && IsAudited(call));
  ledger_->request_ids.insert(request.request_id);
  return NewSequence(call, std::move(request), now);
}

std::optional<Engine::Refusal> Engine::RefusesAll(double now) const {
  if (draining_) {
    return Refusal{
        Unavailable("the server is draining: it finishes what runs and takes nothing new")};
  }
  if (!verifier_up_ && now - verifier_down_since_ >= options_.verifier_timeout_seconds) {
    return Refusal{Unavailable(absl::StrCat("the verifier has been gone for more than ",
                                            options_.verifier_timeout_seconds, " s")),
                   1000};
  }
  // Whatever waits would run already if there were a slot for it. With no queue at all only Pump
  // tells.
  if (options_.max_queue > 0 && queue_.size() >= options_.max_queue) return QueueIsFull();
  return std::nullopt;
}

Engine::Refusal Engine::QueueIsFull() const {
  return QueueIsFull(options_.max_queue, queue_.size(), slots_.size(), mean_service_seconds_);
}

Engine::Refusal Engine::QueueIsFull(size_t max_queue, size_t num_waiting, size_t num_slots,
                                    double mean_service_seconds) {
  const double rounds =
      static_cast<double>(num_waiting + 1) / static_cast<double>(std::max<size_t>(1, num_slots));
  return {ResourceExhausted(
              absl::StrCat("the queue is full: ", max_queue, " requests wait (--max-queue)")),
          static_cast<int>(std::clamp(1000 * rounds * mean_service_seconds, 100.0, 10000.0))};
}

std::unique_ptr<Sequence> Engine::NewSequence(CallId call, GenerationRequest request,
                                              double now) const {
  const double arrived_at = request.arrived_at > 0 ? request.arrived_at : now;
  const AcceptanceMode mode = request.greedy()              ? AcceptanceMode::kGreedy
                              : request.open.reproducible() ? AcceptanceMode::kReproducible
                                                            : AcceptanceMode::kSampled;
  return std::make_unique<Sequence>(call, std::move(request), arrived_at, tokenizer_,
                                    controller_.NewEstimate(mode));
}

std::optional<SlotLife> Engine::OnCancel(CallId call, double now) {
  std::unique_ptr<Sequence> cancelled;
  for (auto* waiting : {&queue_, &preempted_}) {
    const auto it = std::find_if(waiting->begin(), waiting->end(),
                                 [call](const auto& sequence) { return sequence->call == call; });
    if (it == waiting->end()) continue;
    cancelled = std::move(*it);
    waiting->erase(it);
  }
  for (uint32_t id = 0; id < slots_.size() && cancelled == nullptr; ++id) {
    const Sequence* sequence = slots_[id].sequence.get();
    if (sequence == nullptr || sequence->is_replay() || sequence->call != call) continue;
    cancelled = Vacate(id);
  }
  if (cancelled != nullptr) ledger_->request_ids.erase(cancelled->request.request_id);
  Pump(now);  // others may have waited for this one
  return cancelled != nullptr ? cancelled->last_slot : std::nullopt;
}

void Engine::OnDraftReply(SessionId session, v1::DraftReply& reply, double now) {
  if (!workers_.IsCurrent(kDrafterPeer, session)) return;
  const bool of_batch =
      propose_.has_value() && propose_->session == session && propose_->id == reply.id();
  if (of_batch != reply.has_propose() && !reply.has_log_prob_chunk() && !reply.has_error()) {
    // The batch would wait for the right one forever.
    workers_.Drop(kDrafterPeer, SessionChange::kProtocolError, kWrongAnswer, now);
    return Pump(now);
  }
  if (of_batch && reply.has_propose()) {
    v1::ProposeReply& propose = *reply.mutable_propose();
    BoundTimes(now - propose_->begun_at, &propose);
    propose.set_catch_up_seconds(Bounded(propose.catch_up_seconds(), propose.compute_seconds()));
  }
  if (workers_.OnDraftReply(session, reply, now)) return Pump(now);
  switch (reply.kind_case()) {
    case v1::DraftReply::kPropose:
      if (of_batch) OnPropose(*reply.mutable_propose(), now);
      break;
    case v1::DraftReply::kLogProbChunk:
      if (of_batch) ForwardLogProbs(reply, now);
      break;
    case v1::DraftReply::kUpdateSlots:
      if (const std::string broken = TakeRollbacks(kDrafterPeer, reply.update_slots());
          !broken.empty()) {
        workers_.Drop(kDrafterPeer, SessionChange::kProtocolError,
                      absl::StrCat("broke the protocol: ", broken), now);
      }
      break;
    case v1::DraftReply::kError:
      OnCommandRefused(kDrafterPeer, of_batch, reply.error(), now);
      break;
    default:
      break;
  }
  Pump(now);
}

void Engine::OnVerifierReply(SessionId session, v1::VerifierReply& reply, double now) {
  if (!workers_.IsCurrent(kVerifierPeer, session)) return;
  const bool of_batch =
      verify_.has_value() && verify_->session == session && verify_->id == reply.id();
  if (of_batch != reply.has_verify() && !reply.has_error()) {
    workers_.Drop(kVerifierPeer, SessionChange::kProtocolError, kWrongAnswer, now);
    return Pump(now);
  }
  if (of_batch && reply.has_verify()) BoundTimes(now - verify_->begun_at, reply.mutable_verify());
  if (workers_.OnVerifierReply(session, reply, now)) return Pump(now);
  switch (reply.kind_case()) {
    case v1::VerifierReply::kVerify:
      if (of_batch) OnVerify(*reply.mutable_verify(), now);
      break;
    case v1::VerifierReply::kError:
      OnCommandRefused(kVerifierPeer, of_batch, reply.error(), now);
      break;
    default:
      break;
  }
  Pump(now);
}

void Engine::OnCommandRefused(PeerId peer, bool of_batch, const v1::WorkerError& error,
                              double now) {
  constexpr char kWhy[] = "it refused a command";
  const std::string detail = WorkerText(error.message());
  if (of_batch) {
    workers_.Drop(peer, SessionChange::kProtocolError, kWhy, now, detail);
  } else {  // about a ring that is given up already, or slots that the worker does not have
    const std::string summary = absl::StrCat(WorkerName(KindOf(peer)), ": ", kWhy);
    Log(LogLine::Level::kWarning, absl::StrCat(summary, ": ", detail), summary);
  }
}

void Engine::OnSessionLost(Worker /*worker*/, SessionId session, const std::string& why,
                           double now) {
  workers_.OnLost(session, WorkerText(why), now);
  Pump(now);
}

void Engine::OnOpenSlots(uint32_t num_open) {
  const auto own = static_cast<uint32_t>(verifier().num_open_slots());
  num_foreign_slots_ = num_open - std::min(own, num_open);
}

void Engine::OnPong(Worker /*worker*/, SessionId session, const v1::WatchPong& pong, double now) {
  workers_.OnPong(session, pong, now);
  const bool of_verifier = session == verifier().session();
  if (of_verifier && pong.has_num_open_slots()) {
    OnOpenSlots(pong.num_open_slots());
    reported_free_pages_ = pong.num_free_pages();
  }
  // Nobody waits for a replay, and the verifier should not.
  if (of_verifier && workers_.draining(kVerifierPeer) && PreemptReplay()) Pump(now);
  const double limit = options_.workers.heartbeat_timeout_seconds;
  // A worker that lives, computes nothing and owes an answer has lost the question.
  const auto owes_answer = [&](auto& batch) {
    if (!batch.has_value() || batch->session != session || !batch->sent) return false;
    if (pong.computing()) {
      batch->idle_since = 0;
    } else if (batch->idle_since == 0) {
      batch->idle_since = now;
    }
    return batch->idle_since > 0 && limit > 0 && now - batch->idle_since >= limit;
  };
  std::optional<PeerId> hung;
  if (owes_answer(verify_)) hung = kVerifierPeer;
  if (owes_answer(propose_)) hung = kDrafterPeer;
  if (!hung.has_value()) return;
  workers_.Drop(*hung, SessionChange::kHung,
                absl::StrCat("it answers pings, but not a batch, for ", limit, " s"), now);
  Pump(now);
}

void Engine::Tick(double now) {
  workers_.Tick(now);
  NoticeLostSessions(now);
  if (propose_.has_value() && now - propose_->sent_at >= options_.drafter_timeout_seconds) {
    workers_.Drop(kDrafterPeer, SessionChange::kTimeout,
                  absl::StrCat("no drafts within ", options_.drafter_timeout_seconds, " s"), now);
  }
  NoticeLostSessions(now);
  CheckVerifierBudget(now);
  Pump(now);
}

void Engine::Drain() {
  draining_ = true;
  replays_.clear();
}

void Engine::Stop(double now) {
  Drain();
  EndEverything(Unavailable("the server stops"));
  Pump(now);
}

void Engine::OnCommandsSent(double now) {
  if (propose_.has_value() && !std::exchange(propose_->sent, true)) propose_->sent_at = now;
  if (verify_.has_value() && !std::exchange(verify_->sent, true)) verify_->sent_at = now;
}

double Engine::NextDeadline() const {
  double deadline = workers_.NextDeadline();
  if (propose_.has_value()) {
    deadline = std::min(deadline, propose_->sent_at + options_.drafter_timeout_seconds);
  }
  if (!verifier_up_ && !idle()) {
    deadline = std::min(deadline, verifier_down_since_ + options_.verifier_timeout_seconds);
  }
  if (verifier_up_ && num_queued() > 0 && num_running() == 0) {
    deadline = std::min(deadline, admit_at_);
  }
  return deadline;
}

// ---------------------------------------------------------------- what goes on

void Engine::Pump(double now) {
  NoticeLostSessions(now);
  Admit(now);
  if (verifier_up_) {
    const uint32_t first = next_cohort_;
    const auto num_cohorts = static_cast<uint32_t>(cohorts_.size());
    for (uint32_t i = 0; i < num_cohorts; ++i) Advance((first + i) % num_cohorts, now);
  }
  if (!propose_.has_value()) SendUpdates(kDrafterPeer);
  if (!verify_.has_value()) SendUpdates(kVerifierPeer);
}

void Engine::Advance(uint32_t index, double now) {
  Cohort& cohort = cohorts_[index];
  if (cohort.stage == Cohort::Stage::kIdle) {
    if (propose_.has_value()) return;  // the drafter works for the other cohort
    if (SendPropose(index, now)) {
      cohort.stage = Cohort::Stage::kProposing;
      return;
    }
    cohort.stage = Cohort::Stage::kProposed;
  }
  if (cohort.stage == Cohort::Stage::kProposed && !verify_.has_value()) SendVerify(index, now);
}

// ---------------------------------------------------------------- lost sessions

void Engine::NoticeLostSessions(double now) {
  if (const SessionId session = workers_.ready_session(kDrafterPeer);
      session != drafter().session()) {
    if (drafter().session() != 0) OnDrafterLost();
    if (session != 0) drafter().Attach(session, *workers_.info(kDrafterPeer));
  }
  const SessionId session = workers_.ready_session(kVerifierPeer);
  if (session == verifier().session()) return;
  if (verifier().session() != 0) OnVerifierLost(now);
  if (verifier_up_) verifier_down_since_ = now;
  verifier_up_ = session != 0;
  if (!verifier_up_) return;
  const v1::AttachReply& info = *workers_.info(kVerifierPeer);
  verifier().Attach(session, info);
  num_foreign_slots_ = 0;
  reported_free_pages_.reset();
  if (!slots_.empty()) return;
  slots_.resize(std::min(options_.workers.max_slots, info.max_slots()));
  for (WorkerPeer& peer : peers_) peer.ResizeSlots(slots_.size());
}

void Engine::OnDrafterLost() {
  ++counts_.losses[Worker::kDrafter];
  if (propose_.has_value()) {
    // Its slots are decoded plainly.
    cohorts_[propose_->cohort].stage = Cohort::Stage::kProposed;
    for (const ProposeBatch::Item& item : propose_->items) {
      slots_[item.slot].fallback = Fallback::kDraftFailed;
    }
    Log(LogLine::Level::kInfo,
        absl::StrCat("draft: lost while it drafted for ", propose_->items.size(), " slots"));
    for (const ProposeBatch::Item& item : propose_->items) {
      Sequence* sequence = Find(item.slot, item.serial);
      if (sequence == nullptr || ++sequence->lost_drafts < options_.max_lost_rounds) continue;
      sequence->drafting_off = true;
      LogSlot(LogLine::Level::kWarning, item.slot,
              absl::StrCat("draft: the request is decoded without drafts: the drafter was lost ",
                           sequence->lost_drafts, " times in a row while drafting for it"));
    }
    propose_.reset();
  }
  // Blocks that wait lie in a ring that a new drafter replaces.
  for (Cohort& cohort : cohorts_) {
    for (Draft& draft : cohort.drafts) {
      if (draft.ring.has_value()) draft = Draft();
    }
  }
  drafter().Lose();
}

void Engine::OnVerifierLost(double now) {
  ++counts_.losses[Worker::kVerifier];
  for (Cohort& cohort : cohorts_) {
    cohort.drafts.clear();  // after a rebuild they are drafted anew
    if (cohort.stage != Cohort::Stage::kProposing) cohort.stage = Cohort::Stage::kIdle;
  }
  verifier().Lose();
  if (!verify_.has_value()) return;
  // Its outcome is not known, so the round may be drawn again.
  const VerifyBatch lost = *std::exchange(verify_, std::nullopt);
  Log(LogLine::Level::kInfo,
      absl::StrCat("verifier: lost while it computed ", lost.rows, " rows of ", lost.items.size(),
                   " slots", lost.prompt_rows > 0 ? ", with prompts" : ""));
  for (const VerifyBatch::Item& item : lost.items) {
    Sequence* sequence = Find(item.slot, item.serial);
    if (sequence == nullptr) continue;
    sequence->suspected_at = now;
    if (++sequence->lost_rounds < options_.max_lost_rounds) continue;
    auto& quarantine = ledger_->quarantine;
    if (quarantine.size() == kMaxQuarantined) quarantine.pop_front();
    quarantine.emplace_back(sequence->prefix_hash(sequence->prompt_len()),
                            now + kQuarantineSeconds);
    LogSlot(LogLine::Level::kWarning, item.slot,
            absl::StrCat("verifier: died ", sequence->lost_rounds,
                         " times in a row while computing the request, which is given up"));
    FinishSlot(item.slot, FailedPrecondition(
                              absl::StrCat("quarantined: the verifier died ", sequence->lost_rounds,
                                           " times in a row while computing this request")));
  }
}

void Engine::CheckVerifierBudget(double now) {
  if (verifier_up_ || now - verifier_down_since_ < options_.verifier_timeout_seconds) return;
  EndEverything(Unavailable(absl::StrCat("the verifier has been gone for more than ",
                                         options_.verifier_timeout_seconds, " s")));
}

// ---------------------------------------------------------------- slots and queues

size_t Engine::num_running() const {
  return static_cast<size_t>(std::count_if(slots_.begin(), slots_.end(), [](const Slot& slot) {
    return slot.sequence != nullptr && !slot.sequence->is_replay();
  }));
}

bool Engine::HasRoomFor(const Sequence& sequence, double now) const {
  const PageBudget& pages = verifier().pages();
  if (!pages.limited()) return true;
  // Other routers hold what one lacked: it was told when to try again, and goes first.
  if (now < admit_at_) return false;
  if (num_running() == 0) return true;  // alone it fits
  return pages.PagesOf(sequence.committed_len() + 1) + 1 <= pages.num_free() - PagesSpokenFor();
}

int64_t Engine::PagesSpokenFor() const {
  const PageBudget& pages = verifier().pages();
  int64_t spoken_for = 0;
  for (uint32_t id = 0; id < slots_.size(); ++id) {
    const Sequence* sequence = slots_[id].sequence.get();
    if (sequence == nullptr || sequence->is_replay()) continue;
    spoken_for += pages.PagesOf(sequence->committed_len() + 1) -
                  pages.PagesOf(verifier().slot(id).cached_len);
  }
  return spoken_for;
}

std::optional<uint32_t> Engine::SlotForNext() {
  for (uint32_t id = 0; id < slots_.size(); ++id) {
    if (slots_[id].sequence == nullptr) return id;
  }
  return PreemptReplay();
}

std::optional<uint32_t> Engine::PreemptReplay() {
  for (uint32_t id = 0; id < slots_.size(); ++id) {
    if (slots_[id].sequence == nullptr || !slots_[id].sequence->is_replay()) continue;
    Preempt(id);
    return id;
  }
  return std::nullopt;
}

void Engine::Admit(double now) {
  if (!verifier_up_) return;
  while (true) {
    const bool is_replay = preempted_.empty() && queue_.empty();
    if (is_replay && (num_running() > 0 || draining_ || workers_.draining(kVerifierPeer))) {
      return;
    }
    auto& waiting = !preempted_.empty() ? preempted_ : !queue_.empty() ? queue_ : replays_;
    if (waiting.empty()) return;
    if (!is_replay && !HasRoomFor(*waiting.front(), now)) {
      if (!PreemptReplay()) return;
      continue;
    }
    // Replays run one at a time.
    if (is_replay && std::any_of(slots_.begin(), slots_.end(),
                                 [](const Slot& slot) { return slot.sequence != nullptr; })) {
      return;
    }
    const std::optional<uint32_t> slot_id = SlotForNext();
    if (!slot_id.has_value()) return;
    std::unique_ptr<Sequence> next = std::move(waiting.front());
    waiting.pop_front();
    Occupy(*slot_id, std::move(next), now);
  }
}

void Engine::Occupy(uint32_t slot_id, std::unique_ptr<Sequence> sequence, double now) {
  Slot& slot = slots_[slot_id];
  if (sequence->order == 0) {
    sequence->order = ++ledger_->last_order + (sequence->is_replay() ? kReplayOrder : 0);
    sequence->account.Admitted(now);
    if (!sequence->is_replay()) observer_->OnAdmitted(now - sequence->account.arrived_at());
  }
  sequence->serial = ++last_serial_;
  // To the cohort with the fewest.
  std::vector<uint32_t> sizes(cohorts_.size());
  for (const Slot& other : slots_) {
    if (other.sequence != nullptr) ++sizes[other.cohort];
  }
  slot.cohort = static_cast<uint32_t>(std::min_element(sizes.begin(), sizes.end()) - sizes.begin());
  slot.sequence = std::move(sequence);
  for (WorkerPeer& peer : peers_) peer.BeginLife(slot_id);
  LogSlot(LogLine::Level::kDebug, slot_id, "slot taken");
}

std::unique_ptr<Sequence> Engine::Vacate(uint32_t slot_id) {
  for (WorkerPeer& peer : peers_) peer.Close(slot_id);
  Slot& slot = slots_[slot_id];
  slot.sequence->last_slot = SlotLife{slot_id, verifier().slot(slot_id).epoch};
  return std::move(slot.sequence);
}

void Engine::Preempt(uint32_t slot_id) {
  LogSlot(LogLine::Level::kDebug, slot_id, "preempted: others need its pages");
  std::unique_ptr<Sequence> sequence = Vacate(slot_id);
  if (sequence->is_replay()) {
    replays_.push_front(std::move(sequence));
    return;
  }
  ++counts_.preemptions;
  AddPreempted(std::move(sequence));
}

void Engine::AddPreempted(std::unique_ptr<Sequence> sequence) {
  const auto place = std::find_if(
      preempted_.begin(), preempted_.end(),
      [&](const std::unique_ptr<Sequence>& other) { return other->order > sequence->order; });
  preempted_.insert(place, std::move(sequence));
}

Sequence* Engine::Find(uint32_t slot_id, uint64_t serial) {
  Sequence* sequence = slots_[slot_id].sequence.get();
  return sequence != nullptr && sequence->serial == serial ? sequence : nullptr;
}

void Engine::FinishSlot(uint32_t slot_id, const absl::Status& status) {
  const std::unique_ptr<Sequence> sequence = Vacate(slot_id);
  if (sequence->is_replay()) return;
  commands_.push_back(
      FinishCall{sequence->call, status, sequence->output.num_tokens(), 0, sequence->last_slot});
  ledger_->request_ids.erase(sequence->request.request_id);
  ++counts_.finished;
}

void Engine::EndEverything(const absl::Status& status) {
  for (uint32_t id = 0; id < slots_.size(); ++id) {
    if (slots_[id].sequence != nullptr) FinishSlot(id, status);
  }
  for (auto* waiting : {&preempted_, &queue_}) {
    for (const std::unique_ptr<Sequence>& sequence : *waiting) {
      commands_.push_back(FinishCall{sequence->call, status, sequence->output.num_tokens(), 0,
                                     sequence->last_slot});
      ledger_->request_ids.erase(sequence->request.request_id);
      ++counts_.finished;
    }
    waiting->clear();
  }
}

// ---------------------------------------------------------------- with other engines

void Engine::Adopt(std::unique_ptr<Sequence> sequence, double now) {
  // What the other engine learnt is about its workers.
  sequence->acceptance = controller_.NewEstimate(sequence->mode());
  sequence->resyncs = 0;
  sequence->draft_resyncs = 0;
  // Unless drafters died of it.
  sequence->drafting_off = sequence->lost_drafts >= options_.max_lost_rounds;
  if (sequence->order == 0) {
    queue_.push_back(std::move(sequence));
  } else {
    AddPreempted(std::move(sequence));
  }
  Pump(now);
}

std::vector<std::unique_ptr<Sequence>> Engine::Release(
    const std::function<bool(const Sequence&)>& wants, double now) {
  std::vector<std::unique_ptr<Sequence>> released;
  for (uint32_t id = 0; id < slots_.size() && !verifier_up_; ++id) {
    const Sequence* sequence = slots_[id].sequence.get();
    if (sequence == nullptr || sequence->is_replay() || !wants(*sequence)) continue;
    released.push_back(Vacate(id));
  }
  for (auto& sequence : preempted_) {
    if (wants(*sequence)) released.push_back(std::move(sequence));
  }
  std::sort(released.begin(), released.end(),
            [](const auto& a, const auto& b) { return a->order < b->order; });
  for (auto& sequence : queue_) {
    if (wants(*sequence)) released.push_back(std::move(sequence));
  }
  std::erase(preempted_, nullptr);
  std::erase(queue_, nullptr);
  Pump(now);
  return released;
}

PodRoom Engine::Room(double now) const {
  PodRoom room;
  const PageBudget& pages = verifier().pages();
  if (pages.limited()) {
    room.page_tokens = pages.page_tokens();
    room.num_pages = pages.num_pages();
  }
  if (!verifier_up_) return room;
  room.takes = preempted_.empty() && queue_.empty();
  size_t num_running = 0;
  for (const Slot& slot : slots_) {
    num_running += slot.sequence != nullptr && !slot.sequence->is_replay() ? 1 : 0;
  }
  room.idle = num_running == 0;
  const auto own_slots = static_cast<uint32_t>(slots_.size());
  room.num_free_slots = own_slots - static_cast<uint32_t>(num_running);
  room.num_slots = workers_.info(kVerifierPeer)->max_slots();
  room.num_open_slots = num_foreign_slots_ + static_cast<uint32_t>(num_running);
  if (!pages.limited()) return room;
  // Else one that found nothing here would be back at once.
  room.takes = room.takes && now >= admit_at_;
  // Replies are newer than pongs; where nothing runs there are none.
  room.num_free_pages = room.idle && reported_free_pages_.has_value()
                            ? int64_t{*reported_free_pages_}
                            : pages.num_free() - PagesSpokenFor();
  return room;
}

bool Engine::CanHold(const Sequence& sequence) const {
  const uint64_t most =
      uint64_t{sequence.prompt_len()} + static_cast<uint64_t>(sequence.request.max_tokens);
  return !verifier().pages().limited() || most <= verifier().pages().capacity();
}

bool Engine::Has(CallId call) const {
  const auto is_it = [call](const std::unique_ptr<Sequence>& sequence) {
    return sequence != nullptr && sequence->call == call && !sequence->is_replay();
  };
  return std::any_of(slots_.begin(), slots_.end(),
                     [&](const Slot& slot) { return is_it(slot.sequence); }) ||
         std::any_of(preempted_.begin(), preempted_.end(), is_it) ||
         std::any_of(queue_.begin(), queue_.end(), is_it);
}

Gauges Engine::ReadGauges() const {
  Gauges gauges;
  gauges.running = static_cast<int>(num_running());
  gauges.queued = static_cast<int>(num_queued());
  gauges.slots = static_cast<int>(slots_.size());
  for (PeerId id = 0; id < peers_.size(); ++id) {
    const PageBudget& pages = peers_[id].pages();
    gauges.kv_pages[KindOf(id)] += static_cast<int>(pages.num_pages());
    gauges.free_kv_pages[KindOf(id)] += static_cast<int>(pages.num_free());
  }
  gauges.kv_page_tokens = static_cast<int>(verifier().pages().page_tokens());
  return gauges;
}

// ---------------------------------------------------------------- audit

bool Engine::IsAudited(uint64_t number) const {
  const uint64_t hash = ExtendTokenHash(options_.audit_key ^ number, 0);
  return static_cast<double>(hash >> 11) * 0x1p-53 < options_.audit_fraction;
}

void Engine::QueueReplay(const Sequence& finished) {
  if (draining_ || replays_.size() >= kMaxReplays || finished.request.open.lenience() != 1 ||
      finished.mode() == AcceptanceMode::kSampled || !IsAudited(finished.call)) {
    return;
  }
  // It shares no page with a client: every row is computed anew. No tenant's name has such a byte.
  GenerationRequest request = finished.request;
  request.open.set_cache_salt(absl::StrCat("\x01replay ", finished.call));
  std::unique_ptr<Sequence> replay =
      NewSequence(finished.call, std::move(request), finished.account.admitted_at());
  replay->expected.assign(finished.output_tokens().begin(), finished.output_tokens().end());
  replays_.push_back(std::move(replay));
}

void Engine::ReportAlarm() {
  if (std::string alarm = ledger_->audit.TakeAlarm(); !alarm.empty()) {
    commands_.push_back(LogLine{.level = LogLine::Level::kError,
                                .text = std::move(alarm),
                                .summary = "audit: found a difference; the log says where"});
  }
}

}  // namespace tandem
