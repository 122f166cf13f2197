#include "services/router/engine/pod_engine.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "services/router/engine/rounds/invariants.h"
#include "services/router/engine/rounds/propose.h"
#include "services/router/engine/rounds/propose_plan.h"
#include "services/router/engine/rounds/rollback.h"
#include "services/router/engine/rounds/verify.h"
#include "services/router/engine/sessions/worker_text.h"

namespace tandem {
namespace {

constexpr char kWrongAnswer[] = "the worker answered a command with something else";

double Bounded(double seconds, double limit) {
  return seconds > 0 ? std::min(seconds, limit) : 0.0;  // NaN becomes 0
}

// Bounds the times that a worker states for a batch by the time since the event that the batch
// follows from. The times may be longer than since the batch was known to be sent: where cores are
// few, a worker takes the router's core as soon as it has the batch.
template <typename Reply>
void BoundTimes(double longest, Reply* reply) {
  reply->set_compute_seconds(Bounded(reply->compute_seconds(), longest));
  reply->set_transfer_seconds(Bounded(reply->transfer_seconds(), longest));
}

// Returns true if the reply answers the batch under way.
template <typename OptionalBatch, typename Reply>
bool Answers(const OptionalBatch& batch, SessionId session, const Reply& reply) {
  return batch.has_value() && batch->session == session && batch->id == reply.id();
}

// The verifier's own drafter, if the request may use it.
std::optional<Drafter> SelfDrafterFor(const RoundState& state, const Sequence& sequence) {
  const v1::AttachReply* verifier = state.workers.info(kVerifierPeer);
  if (verifier == nullptr || sequence.is_replay()) return std::nullopt;
  if (FixedDraftLength(state.options, sequence) == 0u) return std::nullopt;
  const std::optional<Drafter> drafter = FindDrafter(verifier->self_drafter().name());
  const bool may = drafter.has_value() && IsSelfDrafter(*drafter) &&
                   sequence.request.drafters.contains(*drafter);
  return may ? drafter : std::nullopt;
}

// Whether the server has a draft model, ready or not.
bool HasDraftModel(const RoundState& state) {
  for (size_t number = 0; number < kMaxDraftModels; ++number) {
    if (state.draft_models.roster().has(number)) return true;
  }
  return false;
}

// Null: the request uses no lookups.
std::unique_ptr<RequestLookups> MakeLookups(const Sequence& sequence, RoundState* state) {
  const GenerationRequest& request = sequence.request;
  const DrafterSet& drafters = request.drafters;
  const bool predicts = drafters.contains(Drafter::kPrediction) && !request.prediction.empty();
  const bool retrieves = drafters.contains(Drafter::kRetrieval) && state->options.has_corpus;
  // The verifier proposes by itself only what it can.
  const std::optional<Drafter> self = SelfDrafterFor(*state, sequence);
  DrafterSet used = drafters;
  for (const Drafter drafter : kSelfDrafters) {
    if (drafter != self) used.Remove(drafter);
  }
  if (!HasDraftModel(*state)) used.Remove(Drafter::kModel);
  if (sequence.is_replay() || FixedDraftLength(state->options, sequence) == 0u ||
      !(predicts || retrieves || self.has_value() || drafters.contains(Drafter::kSuffix) ||
        drafters.contains(Drafter::kNgram) || drafters.contains(Drafter::kRecycling))) {
    return nullptr;
  }
  return std::make_unique<RequestLookups>(
      used, state->options.ngram, sequence.mode(), sequence.prompt_len(),
      static_cast<size_t>(request.max_tokens), request.prediction,
      &state->draft_models.controller().lookup_priors());
}

// Whether a client's request wants drafts of a draft model, whichever that is.
bool ChoosesModel(const RoundState& state, const Sequence& sequence) {
  return !sequence.is_replay() && sequence.request.draft_model.empty() &&
         AsksDraftModels(state.options, sequence);
}

// The choice of a request that begins in this pod.
ModelChoice MakeModelChoice(const Sequence& sequence, RoundState* state) {
  ModelChoice choice = state->draft_models.NewChoice(sequence.mode());
  if (!ChoosesModel(*state, sequence)) return choice;
  if (const auto model = state->draft_models.NextToTry(sequence.mode())) choice.Try(*model);
  return choice;
}

}  // namespace

PodEngine::PodEngine(PodId id, const EngineOptions& options, const Tokenizer* tokenizer,
                     EngineObserver* observer, AuditMonitor* audit)
    : id_(id), state_(options, tokenizer, observer, audit) {}

// ---------------------------------------------------------------- settle: draft models

void PodEngine::SetRoster(const DraftRoster& roster, double now) {
  const DraftRoster before = state_.draft_models.roster();
  state_.draft_models.SetRoster(roster);
  if (!(roster.heads() == before.heads())) {
    state_.workers.WantHeads(roster.heads().wanted(), now);
  }
  const uint32_t num_places = NumDraftPlaces(state_.options.workers);
  for (size_t number = 0; number < num_places; ++number) {
    const PeerId peer = kDrafterPeer + static_cast<PeerId>(number);
    const bool stays = roster.has(number) == before.has(number) &&
                       roster.place(number).folder == before.place(number).folder;
    if (stays) continue;
    if (before.has(number)) state_.workers.LetGo(peer);
    DrainSessionEvents(now);
    state_.slots.peer(peer).Forget();
    if (!roster.has(number)) continue;
    ForgetDraftModel(number);
    state_.workers.TakeUp(peer, roster.place(number).folder, now);
  }
  // What was planned before does not bind: those slots decode plainly in this round.
  for (Cohort& cohort : state_.cohorts) {
    std::erase_if(cohort.waiting, [&](const WaitingPropose& waiting) {
      return roster.place(DraftModelOf(waiting.peer)).role == DraftRole::kStandby;
    });
  }
}

void PodEngine::ForgetDraftModel(size_t number) {
  state_.draft_models.Forget(number);
  for (uint32_t id = 0; id < state_.slots.size(); ++id) {
    Sequence* sequence = state_.slots[id].sequence.get();
    if (sequence == nullptr) continue;
    DraftLengthController& controller = state_.draft_models.controller(number);
    sequence->models->Renew(number, controller.NewEstimate(sequence->mode()),
                            controller.NewTrials(sequence->mode()));
    sequence->models->set_version(state_.draft_models.version());
    sequence->faults.drafter(static_cast<uint32_t>(number)) = DrafterFaults();
  }
}

void PodEngine::FollowHeads() {
  state_.draft_models.controller().lookup_priors().ForgetSelf();
  for (uint32_t id = 0; id < state_.slots.size(); ++id) {
    if (Sequence* sequence = state_.slots[id].sequence.get()) FollowHeads(sequence);
  }
}

void PodEngine::FollowHeads(Sequence* sequence) {
  if (sequence->lookups == nullptr) {
    sequence->lookups = MakeLookups(*sequence, &state_);
  } else {
    sequence->lookups->SetSelf(SelfDrafterFor(state_, *sequence));
  }
}

// ---------------------------------------------------------------- settle: workers' replies

void PodEngine::Start(double now) {
  verifier_seen_at_ = now;
  state_.workers.Start(now);
}

void PodEngine::OnDraftReply(SessionId session, v1::DraftReply& reply, double now) {
  const std::optional<PeerId> peer = state_.workers.DrafterOf(session);
  if (!peer.has_value()) return;
  const bool of_batch = Answers(state_.propose, session, reply);
  if (of_batch != reply.has_propose() && !reply.has_log_prob_chunk() && !reply.has_error()) {
    // The batch would wait for the right answer forever.
    state_.workers.Drop(*peer, SessionChange::kProtocolError, kWrongAnswer, now);
    return DrainSessionEvents(now);
  }
  if (of_batch && reply.has_propose()) {
    v1::ProposeReply& propose = *reply.mutable_propose();
    BoundTimes(now - state_.propose->begun_at, &propose);
    propose.set_catch_up_seconds(Bounded(propose.catch_up_seconds(), propose.compute_seconds()));
  }
  if (!state_.workers.OnDraftReply(session, reply, now)) {
    switch (reply.kind_case()) {
      case v1::DraftReply::kPropose:
        if (of_batch) OnPropose(state_, reply.propose(), now);
        break;
      case v1::DraftReply::kLogProbChunk:
        if (of_batch) ForwardLogProbs(state_, reply.mutable_log_prob_chunk(), now);
        break;
      case v1::DraftReply::kUpdateSlots:
        if (absl::Status status = CheckRollbacks(state_, *peer, reply.update_slots());
            status.ok()) {
          TakeRollbacks(state_, *peer, reply.update_slots());
        } else {
          DropForBrokenRule(state_, *peer, status, now);
        }
        break;
      case v1::DraftReply::kError:
        OnCommandRefused(*peer, of_batch, reply.error(), now);
        break;
      default:
        break;
    }
  }
  DrainSessionEvents(now);
}

void PodEngine::OnVerifierReply(SessionId session, v1::VerifierReply& reply, double now) {
  if (!state_.workers.IsCurrent(kVerifierPeer, session)) return;
  if (verifier_up()) verifier_seen_at_ = now;
  const bool of_batch = Answers(state_.verify, session, reply);
  if (of_batch != reply.has_verify() && !reply.has_error()) {
    state_.workers.Drop(kVerifierPeer, SessionChange::kProtocolError, kWrongAnswer, now);
    return DrainSessionEvents(now);
  }
  if (of_batch && reply.has_verify()) {
    v1::VerifyReply& verify = *reply.mutable_verify();
    const double longest = now - state_.verify->begun_at;
    BoundTimes(longest, &verify);
    verify.set_propose_seconds(
        Bounded(verify.propose_seconds(), longest - verify.compute_seconds()));
  }
  const bool is_settled = state_.workers.OnVerifierReply(session, reply, now);
  if (state_.workers.TakeHeadsChange()) FollowHeads();
  if (!is_settled) {
    if (reply.has_verify() && of_batch) OnVerify(state_, *reply.mutable_verify(), now);
    if (reply.has_error()) OnCommandRefused(kVerifierPeer, of_batch, reply.error(), now);
  }
  DrainSessionEvents(now);
}

void PodEngine::OnSearched(const SearchCorpus& search, std::vector<CorpusAnswer> answers,
                           double now) {
  if (search.session != state_.slots.verifier().session()) return;
  TakeAnswers(state_, search, std::move(answers), now);
}

void PodEngine::OnCommandRefused(PeerId peer, bool of_batch, const v1::WorkerError& error,
                                 double now) {
  constexpr char kWhy[] = "the worker refused a command";
  const std::string detail = WorkerText(error.message());
  if (of_batch) {
    state_.workers.Drop(peer, SessionChange::kProtocolError, kWhy, now, detail);
  } else {  // about a ring that is given up already, or slots that the worker does not have
    const std::string summary = absl::StrCat(PeerName(peer), ": ", kWhy);
    state_.out.Log(LogLine::Level::kWarning, absl::StrCat(summary, ": ", detail), summary);
  }
}

// ---------------------------------------------------------------- settle: sessions and time

void PodEngine::OnSessionLost(SessionId session, const std::string& why, double now) {
  state_.workers.OnLost(session, WorkerText(why), now);
  DrainSessionEvents(now);
}

void PodEngine::OnPong(SessionId session, const v1::WatchPong& pong, double now) {
  state_.workers.OnPong(session, pong, now);
  if (verifier_up() && session == state_.slots.verifier().session()) {
    verifier_seen_at_ = now;
    if (pong.has_num_open_slots()) {
      NoteOpenSlots(state_, pong.num_open_slots());
      reported_free_pages_ = pong.num_free_pages();
    }
    // Nobody waits for a replay, and a verifier that was told to stop should not either.
    if (const auto replay = state_.slots.SlotOfReplay();
        replay.has_value() && state_.workers.draining(kVerifierPeer)) {
      state_.out.ReportPreempted(state_.slots.Vacate(*replay));
    }
  }
  CheckOwedAnswer(session, pong, now);
  DrainSessionEvents(now);
}

void PodEngine::CheckOwedAnswer(SessionId session, const v1::WatchPong& pong, double now) {
  const double limit = state_.options.workers.heartbeat_timeout_seconds;
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
  if (owes_answer(state_.verify)) hung = kVerifierPeer;
  if (owes_answer(state_.propose)) hung = state_.propose->peer;
  if (!hung.has_value()) return;
  state_.workers.Drop(
      *hung, SessionChange::kHung,
      absl::StrCat("the worker has answered pings, but no batch, for ", limit, " s"), now);
}

void PodEngine::Tick(double now) {
  state_.workers.Tick(now);
  DrainSessionEvents(now);
  const double drafter_limit = state_.options.drafter_timeout_seconds;
  if (state_.propose.has_value() && now - state_.propose->sent_at >= drafter_limit) {
    state_.workers.Drop(state_.propose->peer, SessionChange::kTimeout,
                        absl::StrCat("no drafts within ", drafter_limit, " s"), now);
    DrainSessionEvents(now);
  }
  const double verifier_limit = state_.options.verifier_timeout_seconds;
  if (verifier_up() || now - verifier_seen_at_ < verifier_limit) return;
  FinishAll(
      Unavailable(absl::StrCat("the verifier has been gone for more than ", verifier_limit, " s")));
}

void PodEngine::DrainSessionEvents(double now) {
  for (std::vector<SessionEvent> events = state_.workers.TakeEvents(); !events.empty();
       events = state_.workers.TakeEvents()) {
    for (const SessionEvent& event : events) {
      if (event.peer == kVerifierPeer) {
        if (event.ready) {
          OnVerifierReady(event.session);
        } else {
          OnVerifierLost(state_, verifier_seen_at_, now);
        }
        verifier_seen_at_ = now;
      } else if (event.ready) {
        state_.slots.peer(event.peer).Attach(event.session, *state_.workers.info(event.peer));
      } else {
        OnDrafterLost(state_, event.peer, event.let_go, now);
      }
    }
  }
}

void PodEngine::OnVerifierReady(SessionId session) {
  const v1::AttachReply& info = *state_.workers.info(kVerifierPeer);
  state_.slots.verifier().Attach(session, info);
  state_.num_foreign_slots = 0;
  reported_free_pages_.reset();
  // A replay that went on with other numerics would find differences that are none.
  if (const std::optional<uint32_t> replay = state_.slots.SlotOfReplay();
      replay.has_value() && state_.slots[*replay].sequence->numerics_id != info.numerics_id()) {
    state_.out.ReportPreempted(state_.slots.Vacate(*replay));
  }
  if (state_.slots.size() > 0) return;
  state_.slots.Resize(std::min(state_.options.workers.max_slots, info.max_slots()));
}

// ---------------------------------------------------------------- fill

PodRoom PodEngine::Room(double now) const {
  PodRoom room;
  const Slots& slots = state_.slots;
  const PageBudget& pages = slots.verifier().pages();
  if (pages.limited()) {
    room.page_tokens = pages.page_tokens();
    room.num_pages = pages.num_pages();
  }
  if (!verifier_up()) return room;
  const auto num_running = static_cast<uint32_t>(slots.num_running());
  room.takes = true;
  room.idle = num_running == 0;
  room.empty = slots.num_taken() == 0;
  room.num_free_slots = slots.size() - num_running;
  room.num_slots = state_.workers.info(kVerifierPeer)->max_slots();
  room.num_open_slots = state_.num_foreign_slots + num_running;
  if (!pages.limited()) return room;
  // Otherwise a sequence that found no page here would be back at once.
  room.takes_at = state_.admit_at;
  room.takes = now >= room.takes_at;
  // Replies are newer than pongs; where nothing runs there are none.
  if (room.idle && reported_free_pages_.has_value()) {
    room.num_free_pages = int64_t{*reported_free_pages_};
    return room;
  }
  room.num_free_pages = pages.num_free() - slots.PagesSpokenFor();
  // A replay gives its pages up for a client.
  if (const std::optional<uint32_t> replay = slots.SlotOfReplay()) {
    room.num_free_pages += pages.PagesOf(slots.verifier().slot(*replay).held_len);
  }
  return room;
}

void PodEngine::Place(std::unique_ptr<Sequence> sequence) {
  Slots& slots = state_.slots;
  if (sequence->pod != id_ || !sequence->models.has_value()) {
    // What other pods showed is about their workers.
    sequence->models = MakeModelChoice(*sequence, &state_);
    if (ChoosesModel(state_, *sequence) && ReadyCanary(state_).has_value()) {
      state_.draft_models.ChooseArm(&*sequence->models);
    }
    sequence->lookups = MakeLookups(*sequence, &state_);
    sequence->faults.Moved(state_.options.max_lost_rounds);
  } else if (sequence->models->version() != state_.draft_models.version()) {
    ModelChoice anew = MakeModelChoice(*sequence, &state_);
    anew.KeepArmOf(*sequence->models);
    sequence->models = std::move(anew);
    sequence->faults.Moved(state_.options.max_lost_rounds);
  }
  // The heads may have changed while it waited.
  const uint64_t heads_version = state_.draft_models.controller().lookup_priors().self_version();
  const bool is_late = sequence->lookups == nullptr
                           ? SelfDrafterFor(state_, *sequence).has_value()
                           : sequence->lookups->self_version() != heads_version;
  if (is_late) FollowHeads(sequence.get());
  sequence->pod = id_;
  const auto replay = slots.SlotOfReplay();
  if (replay.has_value() && !sequence->is_replay()) {
    const bool lacks_pages = slots.num_running() > 0 && !slots.HasPagesFor(*sequence);
    if (lacks_pages || !slots.FreeSlot().has_value()) {
      state_.out.ReportPreempted(slots.Vacate(*replay));
    }
  }
  const uint32_t slot_id = *slots.FreeSlot();
  slots.Occupy(slot_id, std::move(sequence), state_.cohorts.size());
  state_.out.LogSlot(slots, LogLine::Level::kDebug, slot_id, "slot taken");
}

std::unique_ptr<Sequence> PodEngine::TakeBack(CallId call) {
  const std::optional<uint32_t> slot_id = state_.slots.SlotOf(call);
  return slot_id.has_value() ? state_.slots.Vacate(*slot_id) : nullptr;
}

std::vector<std::unique_ptr<Sequence>> PodEngine::TakeBackIf(
    const std::function<bool(const Sequence&)>& wants) {
  std::vector<std::unique_ptr<Sequence>> taken;
  for (uint32_t id = 0; id < state_.slots.size(); ++id) {
    const Sequence* sequence = state_.slots[id].sequence.get();
    if (sequence == nullptr || sequence->is_replay() || !wants(*sequence)) continue;
    taken.push_back(state_.slots.Vacate(id));
  }
  return taken;
}

void PodEngine::NotePrompt(const PromptDeaths& prompt) {
  for (uint32_t id = 0; id < state_.slots.size(); ++id) {
    Sequence* sequence = state_.slots[id].sequence.get();
    if (sequence == nullptr || sequence->is_replay() || sequence->prompt_is_proven()) continue;
    if (sequence->prompt_hash() == prompt.prompt_hash) sequence->faults.TakeOver(prompt.deaths);
  }
  if (!state_.verify.has_value()) return;
  for (VerifyBatch::Item& item : state_.verify->items) {  // some may be canceled
    if (item.witness.prompt_hash == prompt.prompt_hash && !item.witness.prompt_is_proven) {
      item.witness.faults.TakeOver(prompt.deaths);
    }
  }
}

void PodEngine::FinishAll(const absl::Status& status) {
  for (uint32_t id = 0; id < state_.slots.size(); ++id) {
    if (state_.slots[id].sequence == nullptr) continue;
    state_.out.ReportFinished(state_.slots.Vacate(id), status);
  }
}

// ---------------------------------------------------------------- send

void PodEngine::Send(double now) {
  if (verifier_up()) {
    const uint32_t first = state_.next_cohort;
    const auto num_cohorts = static_cast<uint32_t>(state_.cohorts.size());
    for (uint32_t i = 0; i < num_cohorts; ++i) Advance((first + i) % num_cohorts, now);
  }
  for (PeerId peer = kDrafterPeer; peer < state_.slots.num_peers(); ++peer) {
    if (!state_.propose.has_value() || state_.propose->peer != peer) SendUpdates(state_, peer);
  }
  if (!state_.verify.has_value()) SendUpdates(state_, kVerifierPeer);
  AssertInvariants(state_);
}

void PodEngine::Advance(uint32_t index, double now) {
  Cohort& cohort = state_.cohorts[index];
  const bool begins = cohort.stage == Cohort::Stage::kIdle;
  if (begins || cohort.stage == Cohort::Stage::kSearching) {
    if (state_.propose.has_value()) return;  // a drafter works for the other cohort
    if (begins) cohort.search_begun_at = now;
    if (begins && SendSearch(state_, index, now)) cohort.stage = Cohort::Stage::kSearching;
    if (cohort.stage == Cohort::Stage::kSearching && AwaitsSearch(cohort, now)) return;
    // Waiting for a drafter of the other cohort is no search.
    cohort.search_seconds = std::min(now, std::max(cohort.search_until, cohort.search_begun_at)) -
                            cohort.search_begun_at;
    if (SendPropose(state_, index, now)) {
      cohort.stage = Cohort::Stage::kProposing;
      return;
    }
    cohort.stage = Cohort::Stage::kProposed;
  }
  if (cohort.stage == Cohort::Stage::kProposed && !state_.verify.has_value()) {
    SendVerify(state_, index, now);
  }
}

void PodEngine::Close() {
  state_.workers.Close();
  (void)state_.workers.TakeEvents();
}

void PodEngine::OnCommandsSent(double now) {
  const auto note = [now](auto& batch) {
    if (batch.has_value() && !std::exchange(batch->sent, true)) batch->sent_at = now;
  };
  note(state_.propose);
  note(state_.verify);
  LearnProposeCost(state_);
}

// ---------------------------------------------------------------- state

double PodEngine::NextDeadline() const {
  double deadline = state_.workers.NextDeadline();
  if (state_.propose.has_value()) {
    deadline = std::min(deadline, state_.propose->sent_at + state_.options.drafter_timeout_seconds);
  }
  for (const Cohort& cohort : state_.cohorts) {
    // While the drafter has a batch, the next event is its answer.
    if (cohort.stage == Cohort::Stage::kSearching && !state_.propose.has_value()) {
      deadline = std::min(deadline, cohort.search_until);
    }
  }
  if (!verifier_up() && !idle()) {
    deadline = std::min(deadline, verifier_seen_at_ + state_.options.verifier_timeout_seconds);
  }
  return deadline;
}

Gauges PodEngine::ReadGauges() const {
  Gauges gauges;
  gauges.running = static_cast<int>(num_running());
  gauges.slots = static_cast<int>(num_slots());
  for (PeerId peer = 0; peer < state_.slots.num_peers(); ++peer) {
    const PageBudget& pages = state_.slots.peer(peer).pages();
    gauges.kv_pages[KindOf(peer)] += static_cast<int>(pages.num_pages());
    gauges.free_kv_pages[KindOf(peer)] += static_cast<int>(pages.num_free());
  }
  gauges.kv_page_tokens = static_cast<int>(state_.slots.verifier().pages().page_tokens());
  return gauges;
}

}  // namespace tandem
