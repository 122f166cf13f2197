#include "services/router/fleet/fleet.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "services/router/fleet/fleet_invariants.h"

namespace tandem {
namespace {

// The upper half of a session's number is its pod's.
constexpr int kPodShift = 32;

// What admission knows of a pod's engine.
void FillView(const PodEngine& engine, double now, PodView* view) {
  view->room = engine.Room(now);
  view->heard_at = engine.verifier_seen_at();
  view->draining = engine.workers().draining(kVerifierPeer);
  view->num_slots = engine.num_slots();
  if (const v1::AttachReply* info = engine.workers().info(kVerifierPeer);
      info != nullptr && view->numerics_id != info->numerics_id()) {
    view->numerics_id = info->numerics_id();
  }
}

// One pod that does not fit says so in the log, and is no reason for the others to end.
LogLine ComplaintOf(const GiveUp& give_up) {
  constexpr char kConsequence[] = "; the pod gets no requests";
  LogLine line{.level = LogLine::Level::kError,
               .text = absl::StrCat(give_up.status.message(), kConsequence)};
  if (!give_up.summary.empty()) line.summary = absl::StrCat(give_up.summary, kConsequence);
  return line;
}

}  // namespace

Fleet::Fleet(const EngineOptions& options, const Tokenizer* tokenizer, EngineObserver* observer,
             uint64_t turn)
    : options_(options),
      tokenizer_(tokenizer),
      observer_(observer),
      admission_(options, tokenizer, observer, turn),
      roster_(options.workers.num_drafters) {}

void Fleet::Log(LogLine::Level level, const Pod& pod, std::string text) {
  commands_.push_back(LogLine{.level = level, .text = std::move(text), .pod = pod.spec.verifier});
}

// ---------------------------------------------------------------- the list of pods

void Fleet::SetPods(const std::vector<PodSpec>& specs, double now) {
  now_ = now;
  for (const auto& pod : pods_) {
    const bool leaving = std::find(specs.begin(), specs.end(), pod->spec) == specs.end();
    if (leaving == pod->leaving) continue;
    pod->leaving = leaving;
    num_leaving_ += leaving ? 1 : size_t{0} - 1;
    Log(LogLine::Level::kInfo, *pod,
        leaving ? "worker pod: not in the list any more: the pod gets no new requests"
                : "worker pod: in the list again");
  }
  for (const PodSpec& spec : specs) {
    const bool is_known =
        std::any_of(pods_.begin(), pods_.end(), [&](const auto& pod) { return pod->spec == spec; });
    if (!is_known) AddPod(spec, now);
  }
  for (size_t pod = 0; pod < pods_.size(); ++pod) Turn(pod, now);
}

void Fleet::AddPod(const PodSpec& spec, double now) {
  auto pod = std::make_unique<Pod>();
  pod->id = next_pod_++;
  pod->spec = spec;
  EngineOptions options = options_;
  options.workers.before_first_session = SessionId{pod->id} << kPodShift;
  pod->engine = std::make_unique<PodEngine>(pod->id, options, tokenizer_, observer_, &audit_);
  if (promised_.has_value()) pod->engine->Expect(*promised_);
  pod->engine->Start(now);
  pod->engine->SetRoster(roster_, now);
  if (!pods_.empty()) Log(LogLine::Level::kInfo, *pod, "worker pod: new");
  views_.emplace_back().id = pod->id;
  deadlines_.push_back(pod->engine->NextDeadline());
  pods_.push_back(std::move(pod));
}

std::optional<size_t> Fleet::Find(SessionId session) const {
  const auto id = static_cast<PodId>(session >> kPodShift);
  const auto pod = std::lower_bound(pods_.begin(), pods_.end(), id,
                                    [](const auto& a, PodId b) { return a->id < b; });
  if (pod == pods_.end() || (*pod)->id != id) return std::nullopt;
  return static_cast<size_t>(pod - pods_.begin());
}

const PodSpec* Fleet::PodOf(SessionId session) const {
  const std::optional<size_t> pod = Find(session);
  return pod.has_value() ? &pods_[*pod]->spec : nullptr;
}

void Fleet::RemoveDrained() {
  if (num_leaving_ == 0) return;
  for (size_t index = pods_.size(); index-- > 0;) {
    Pod& pod = *pods_[index];
    if (!pod.leaving || !pod.engine->idle() || admission_.AwaitsPod(views_[index])) continue;
    pod.engine->Close();
    Collect(index);
    Log(LogLine::Level::kInfo, pod, "worker pod: drained and let go");
    left_ += pod.engine->counts();
    --num_leaving_;
    if (pod.stays) --num_staying_;
    if (pod.serves && --num_serving_ == 0) down_since_ = now_;
    pods_.erase(pods_.begin() + static_cast<ptrdiff_t>(index));
    views_.erase(views_.begin() + static_cast<ptrdiff_t>(index));
    deadlines_.erase(deadlines_.begin() + static_cast<ptrdiff_t>(index));
  }
}

// ---------------------------------------------------------------- draft models

void Fleet::SetRoster(const DraftRoster& roster, const std::string& what, double now) {
  now_ = now;
  roster_ = roster;
  commands_.push_back(LogLine{LogLine::Level::kInfo, what});
  for (const auto& pod : pods_) pod->engine->SetRoster(roster_, now);
  for (size_t pod = 0; pod < pods_.size(); ++pod) Turn(pod, now);
}

// ---------------------------------------------------------------- what is known of a pod

bool Fleet::LacksDrafter(const Pod& pod) const {
  return options_.workers.drafter_required && AnyDrafterRefused(pod.engine->workers());
}

bool Fleet::TakesNothingNew(const Pod& pod) const {
  return pod.leaving || (num_staying_ > 0 && pod.engine->workers().draining(kVerifierPeer));
}

void Fleet::Refresh(size_t index, double now) {
  Pod& pod = *pods_[index];
  const WorkerSessions& workers = pod.engine->workers();
  const bool serves = workers.ready(kVerifierPeer) && !LacksDrafter(pod);
  const bool stays = serves && !pod.leaving && !workers.draining(kVerifierPeer);
  if (stays != std::exchange(pod.stays, stays)) num_staying_ += stays ? 1 : size_t{0} - 1;
  if (serves != std::exchange(pod.serves, serves)) {
    num_serving_ += serves ? 1 : size_t{0} - 1;
    if (num_serving_ == 0) down_since_ = now;
  }
  PodView& view = views_[index];
  FillView(*pod.engine, now, &view);
  view.serves = serves;
  view.open = serves && !TakesNothingNew(pod);
  deadlines_[index] = pod.engine->NextDeadline();
}

void Fleet::Promise(const Pod& pod) {
  const v1::AttachReply& info = *pod.engine->workers().info(kVerifierPeer);
  const bool had_one_pod_only = next_pod_ == 1;
  bool is_new = true;
  if (!promised_.has_value() || had_one_pod_only) {
    promised_ = info;
  } else if (promised_->model_fingerprint().empty() && !info.model_fingerprint().empty()) {
    promised_->set_model_fingerprint(info.model_fingerprint());  // the first that says
  } else {
    is_new = false;
  }
  for (size_t other = 0; is_new && other < pods_.size(); ++other) {
    pods_[other]->engine->Expect(*promised_);
  }
  if (info.numerics_id() == promised_->numerics_id()) return;
  Log(LogLine::Level::kWarning, pod,
      absl::StrCat("worker pod: has other numerics (", info.numerics_id(), ", the first had ",
                   promised_->numerics_id(), "): streams do not move between the two"));
}

bool Fleet::NobodyFits() const {
  return std::all_of(pods_.begin(), pods_.end(), [this](const auto& pod) {
    return pod->engine->workers().refused(kVerifierPeer) || LacksDrafter(*pod);
  });
}

void Fleet::GiveUpIfNobodyFits() {
  if (gave_up_ || num_serving_ > 0 || pods_.empty() || !idle() || !NobodyFits()) return;
  gave_up_ = true;
  commands_.push_back(GiveUp{FailedPrecondition(
      "no worker pod is the one that was served (the log says why), and no request is left that "
      "could wait for that one: the router ends, so that another start takes what there is")});
}

// ---------------------------------------------------------------- the three steps of an event

bool Fleet::Settle(size_t index, double now) {
  now_ = now;
  Pod& pod = *pods_[index];
  Collect(index);
  bool any_prompt = false;
  for (PodReport& report : pod.engine->TakeReports()) {
    const bool is_prompt = report.kind == PodReport::Kind::kPrompt;
    any_prompt = any_prompt || is_prompt || report.kind == PodReport::Kind::kSuspect;
    if (is_prompt && report.prompt.concerns_copies) {
      for (const auto& each : pods_) each->engine->NotePrompt(report.prompt);
    }
    admission_.TakeReport(std::move(report), now);
  }
  const bool is_ready = pod.engine->workers().ready(kVerifierPeer);
  if (pod.ready && !is_ready) admission_.NoteServed(View(), now);
  if (is_ready && !pod.ready) {
    pod.complaint.clear();
    Promise(pod);
  }
  pod.ready = is_ready;
  const bool frees_slots = any_prompt && EndQuarantined(now);
  CollectEnds();
  Refresh(index, now);
  return frees_slots;
}

bool Fleet::EndQuarantined(double now) {
  bool any = admission_.EndWaitingCopies(now);
  for (size_t index = 0; index < pods_.size(); ++index) {
    const auto taken = pods_[index]->engine->TakeBackIf(
        [&](const Sequence& sequence) { return admission_.IsQuarantined(sequence, now); });
    for (const std::unique_ptr<Sequence>& sequence : taken) {
      admission_.EndQuarantined(*sequence);
    }
    if (taken.empty()) continue;
    any = true;
    Refresh(index, now);
  }
  return any;
}

void Fleet::Turn(size_t index, double now) {
  const bool did_serve = pods_[index]->serves;
  const bool some_stayed = num_staying_ > 0;
  const size_t num_waiting = admission_.num_waiting();
  const bool frees_slots = Settle(index, now);
  GiveUpIfNobodyFits();
  const bool came = pods_[index]->serves && !did_serve;
  const bool others_change = some_stayed != (num_staying_ > 0);
  if (others_change) {  // what the other pods take depends on whether any stays
    for (size_t pod = 0; pod < pods_.size(); ++pod) Refresh(pod, now);
  }
  bool moves = TakeOver(index, now) || admission_.num_waiting() > num_waiting;
  for (size_t pod = 0; came && pod < pods_.size(); ++pod) moves = TakeOver(pod, now) || moves;
  const std::vector<size_t> own = {index};
  FillAndSend(moves || came || others_change || frees_slots ? AllPods() : own,
              frees_slots ? AllPods() : own, now);
}

bool Fleet::TakeOver(size_t index, double now) {
  Pod& pod = *pods_[index];
  if (pod.ready || pod.engine->idle()) return false;
  auto taken = pod.engine->TakeBackIf(
      [this](const Sequence& sequence) { return admission_.MayRunSomewhere(View(), sequence); });
  if (taken.empty()) return false;
  Log(LogLine::Level::kInfo, pod,
      absl::StrCat("worker pod: lost; ", taken.size(), " requests move to others"));
  for (std::unique_ptr<Sequence>& sequence : taken) admission_.Return(std::move(sequence), now);
  Refresh(index, now);
  return true;
}

void Fleet::FillAndSend(std::vector<size_t> candidates, std::vector<size_t> senders, double now) {
  std::vector<bool> has_sent(pods_.size());
  while (true) {
    while (auto placement = admission_.Next(View(), candidates, now)) {
      pods_[placement->pod]->engine->Place(std::move(placement->sequence));
      Refresh(placement->pod, now);
      senders.push_back(placement->pod);
    }
    bool freed = false;
    for (const size_t pod : senders) {
      if (has_sent[pod]) continue;
      has_sent[pod] = true;
      pods_[pod]->engine->Send(now);
      const size_t num_waiting = admission_.num_waiting();
      Settle(pod, now);
      freed = freed || admission_.num_waiting() > num_waiting;
    }
    if (!freed) break;
    // Sequences that gave their slots up may go to pods that have not sent yet. At a pod that has
    // sent, the batch under way has the pages.
    senders.clear();
    candidates = AllPods();
    std::erase_if(candidates, [&](size_t pod) { return has_sent[pod]; });
  }
  AssertEachRequestHasItsId(*this, admission_.num_request_ids());
}

void Fleet::FillAgain(double now) {
  for (size_t pod = 0; pod < pods_.size(); ++pod) Refresh(pod, now);
  FillAndSend(AllPods(), {}, now);
}

std::vector<size_t> Fleet::AllPods() const {
  std::vector<size_t> all(pods_.size());
  std::iota(all.begin(), all.end(), size_t{0});
  return all;
}

// ---------------------------------------------------------------- clients' events

void Fleet::MakeRoom(double now) {
  if (num_waiting() >= options_.max_queue) FillAgain(now);
}

std::optional<Refusal> Fleet::RefusesAll(double now) {
  MakeRoom(now);
  return admission_.RefusesAll(View(), now);
}

void Fleet::OnRequest(CallId call, GenerationRequest request, double now) {
  MakeRoom(now);
  admission_.Enqueue(call, std::move(request), View(), now);
  FillAndSend(AllPods(), {}, now);
  admission_.RefuseOverflow(View());
}

std::optional<SlotLife> Fleet::OnCancel(CallId call, double now) {
  std::vector<size_t> senders;
  std::unique_ptr<Sequence> canceled = admission_.TakeBack(call);
  for (size_t pod = 0; pod < pods_.size() && canceled == nullptr; ++pod) {
    canceled = pods_[pod]->engine->TakeBack(call);
    if (canceled == nullptr) continue;
    senders.push_back(pod);
    Refresh(pod, now);
  }
  if (canceled == nullptr) return std::nullopt;
  admission_.Forget(*canceled, now);
  FillAndSend(AllPods(), std::move(senders), now);  // others may have waited for this one
  GiveUpIfNobodyFits();
  return canceled->last_slot;
}

void Fleet::Drain() { admission_.Drain(); }

void Fleet::Stop(double now) {
  const absl::Status status = Unavailable("the server stops");
  admission_.Drain();
  admission_.EndAll(status);
  for (const auto& pod : pods_) pod->engine->FinishAll(status);
  FillAndSend({}, AllPods(), now);
}

// ---------------------------------------------------------------- workers' events

void Fleet::OnDraftReply(SessionId session, v1::DraftReply& reply, double now) {
  Settle(session, now, [&](PodEngine& engine) { engine.OnDraftReply(session, reply, now); });
}

void Fleet::OnVerifierReply(SessionId session, v1::VerifierReply& reply, double now) {
  Settle(session, now, [&](PodEngine& engine) { engine.OnVerifierReply(session, reply, now); });
}

void Fleet::OnSearched(const SearchCorpus& search, std::vector<CorpusAnswer> answers, double now) {
  Settle(search.session, now,
         [&](PodEngine& engine) { engine.OnSearched(search, std::move(answers), now); });
}

void Fleet::OnSessionLost(Worker /*worker*/, SessionId session, const std::string& why,
                          double now) {
  Settle(session, now, [&](PodEngine& engine) { engine.OnSessionLost(session, why, now); });
}

void Fleet::OnPong(Worker /*worker*/, SessionId session, const v1::WatchPong& pong, double now) {
  Settle(session, now, [&](PodEngine& engine) { engine.OnPong(session, pong, now); });
}

void Fleet::Tick(double now) {
  for (size_t pod = 0; pod < pods_.size(); ++pod) {
    if (deadlines_[pod] > now) continue;
    pods_[pod]->engine->Tick(now);
    Turn(pod, now);
  }
  if (now < admission_.check_at()) return;
  admission_.Check(View(), now);
  FillAgain(now);
  GiveUpIfNobodyFits();
}

double Fleet::NextDeadline() const {
  double deadline = admission_.check_at();
  for (const double of_pod : deadlines_) deadline = std::min(deadline, of_pod);
  return deadline;
}

// ---------------------------------------------------------------- commands

bool Fleet::MakeOwn(size_t index, EngineCommand* command) {
  Pod& pod = *pods_[index];
  if (auto* line = std::get_if<LogLine>(command)) {
    if (pods_.size() > 1) line->pod = pod.spec.verifier;
    return true;
  }
  const auto* give_up = std::get_if<GiveUp>(command);
  if (give_up == nullptr) return true;
  if (NobodyFits() && idle()) {
    gave_up_ = true;
    return true;
  }
  const std::string complaint(give_up->status.message());
  if (pod.complaint == complaint) return false;
  pod.complaint = complaint;
  LogLine line = ComplaintOf(*give_up);
  line.pod = pod.spec.verifier;
  *command = std::move(line);
  return true;
}

void Fleet::Collect(size_t pod) {
  EngineCommands commands = pods_[pod]->engine->TakeCommands();
  if (commands.empty()) return;
  if (sending_.empty() || sending_.back() != pods_[pod]->id) sending_.push_back(pods_[pod]->id);
  commands_.reserve(commands_.size() + commands.size());
  for (EngineCommand& command : commands) {
    if (MakeOwn(pod, &command)) commands_.push_back(std::move(command));
  }
}

void Fleet::CollectEnds() {
  EngineCommands ends = admission_.TakeCommands();
  std::move(ends.begin(), ends.end(), std::back_inserter(commands_));
}

EngineCommands Fleet::TakeCommands() {
  RemoveDrained();
  CollectEnds();
  return std::exchange(commands_, {});
}

void Fleet::OnCommandsSent(double now) {
  for (const PodId id : sending_) {
    const std::optional<size_t> pod = Find(SessionId{id} << kPodShift);
    if (!pod.has_value()) continue;
    pods_[*pod]->engine->OnCommandsSent(now);
    deadlines_[*pod] = pods_[*pod]->engine->NextDeadline();
  }
  sending_.clear();
}

// ---------------------------------------------------------------- state

bool Fleet::idle() const {
  return num_waiting() == 0 && std::all_of(pods_.begin(), pods_.end(),
                                           [](const auto& pod) { return pod->engine->idle(); });
}

FleetState Fleet::State() const {
  FleetState state;
  state.counts = left_;
  state.audit = audit_.stats();
  state.audit_failed = audit_.failed();
  for (const auto& pod : pods_) state.Add(*pod->engine);
  state.counts.finished += admission_.num_finished();
  state.gauges.queued += static_cast<int>(num_waiting());
  return state;
}

}  // namespace tandem
