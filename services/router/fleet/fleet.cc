#include "services/router/fleet/fleet.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace tandem {
namespace {

// The upper half of a session's number is its pod's.
constexpr int kPodShift = 32;

// Seconds between two looks at what waits.
double CheckSeconds(double verifier_timeout_seconds) {
  return std::clamp(verifier_timeout_seconds / 4, 0.01, 1.0);
}

bool HasOutput(const Sequence& sequence) { return !sequence.output_tokens().empty(); }

}  // namespace

Fleet::Fleet(const EngineOptions& options, const Tokenizer* tokenizer, EngineObserver* observer,
             uint64_t turn)
    : options_(options), tokenizer_(tokenizer), observer_(observer), turn_(turn) {}

void Fleet::Log(LogLine::Level level, const Pod& pod, std::string text) {
  LogLine line{.level = level, .text = std::move(text)};
  line.pod = pod.spec.verifier;
  commands_.push_back(std::move(line));
}

// ---------------------------------------------------------------- pods

void Fleet::Start(double now) { down_since_ = now; }

void Fleet::SetPods(const std::vector<PodSpec>& specs, double now) {
  event_at_ = now;
  num_leaving_ = 0;
  for (const auto& pod : pods_) {
    const bool leaving = std::find(specs.begin(), specs.end(), pod->spec) == specs.end();
    if (leaving != pod->leaving) {
      Log(LogLine::Level::kInfo, *pod,
          leaving ? "worker pod: not in the list any more: it gets no new requests"
                  : "worker pod: in the list again");
    }
    pod->leaving = leaving;
    num_leaving_ += leaving ? 1 : 0;
    NoticeStay(*pod);
  }
  for (const PodSpec& spec : specs) {
    const bool is_known =
        std::any_of(pods_.begin(), pods_.end(), [&](const auto& pod) { return pod->spec == spec; });
    if (!is_known) AddPod(spec, now);
  }
  if (single()) return;
  for (size_t pod = 0; pod < pods_.size(); ++pod) AfterEvent(pod, now);
}

void Fleet::AddPod(const PodSpec& spec, double now) {
  auto pod = std::make_unique<Pod>();
  pod->id = next_pod_++;
  pod->spec = spec;
  EngineOptions options = options_;
  options.workers.before_first_session = SessionId{pod->id} << kPodShift;
  pod->engine = std::make_unique<Engine>(options, tokenizer_, observer_, &ledger_);
  for (const auto& other : pods_) {
    const v1::AttachReply* info = other->engine->workers().info(kVerifierPeer);
    if (!promised_.has_value() && info != nullptr) promised_ = *info;
  }
  if (promised_.has_value()) pod->engine->Expect(*promised_);
  if (draining_) pod->engine->Drain();
  pod->engine->Start(now);
  if (!pods_.empty()) Log(LogLine::Level::kInfo, *pod, "worker pod: new");
  pods_.push_back(std::move(pod));
  rooms_.emplace_back();
  deadlines_.push_back(pods_.back()->engine->NextDeadline());
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

void Fleet::RemoveLeft() {
  if (num_leaving_ == 0) return;
  for (size_t pod = pods_.size(); pod-- > 0;) {
    if (!pods_[pod]->leaving || !pods_[pod]->engine->idle()) continue;
    Engine& engine = *pods_[pod]->engine;
    engine.Close();
    Collect(pod);
    Log(LogLine::Level::kInfo, *pods_[pod], "worker pod: drained and let go");
    left_ += engine.counts();
    SetServes(*pods_[pod], false, event_at_);
    NoticeStay(*pods_[pod]);
    --num_leaving_;
    pods_.erase(pods_.begin() + static_cast<ptrdiff_t>(pod));
    rooms_.erase(rooms_.begin() + static_cast<ptrdiff_t>(pod));
    deadlines_.erase(deadlines_.begin() + static_cast<ptrdiff_t>(pod));
  }
}

bool Fleet::LacksDrafter(const Pod& pod) const {
  return options_.workers.drafter_required && pod.engine->workers().refused(kDrafterPeer);
}

bool Fleet::NobodyFits() const {
  return std::all_of(pods_.begin(), pods_.end(), [this](const auto& pod) {
    return pod->engine->workers().refused(kVerifierPeer) || LacksDrafter(*pod);
  });
}

void Fleet::SetServes(Pod& pod, bool serves, double now) {
  if (serves == pod.serves) return;
  pod.serves = serves;
  num_ready_ = serves ? num_ready_ + 1 : num_ready_ - 1;
  if (num_ready_ == 0) down_since_ = now;
}

void Fleet::NoticeStay(Pod& pod) {
  const bool stays = pod.serves && !pod.leaving && !pod.engine->workers().draining(kVerifierPeer);
  if (stays == pod.stays) return;
  pod.stays = stays;
  num_staying_ = stays ? num_staying_ + 1 : num_staying_ - 1;
}

bool Fleet::Goes(const Pod& pod) const {
  return pod.leaving || (num_staying_ > 0 && pod.engine->workers().draining(kVerifierPeer));
}

void Fleet::HearFrom(size_t index, SessionId session, double now) {
  Pod& pod = *pods_[index];
  if (pod.engine->workers().IsCurrent(kVerifierPeer, session)) pod.heard_at = now;
}

bool Fleet::NoticeReadiness(size_t index, double now) {
  Pod& pod = *pods_[index];
  const bool ready = pod.engine->workers().ready(kVerifierPeer);
  SetServes(pod, ready && !LacksDrafter(pod), now);
  NoticeStay(pod);
  if (ready == pod.ready) return false;
  pod.ready = ready;
  if (!ready) return false;
  pod.complaint.clear();
  if (pods_.size() == 1) return true;
  const v1::AttachReply& info = *pod.engine->workers().info(kVerifierPeer);
  Promise(info);
  if (info.numerics_id() != promised_->numerics_id()) {
    Log(LogLine::Level::kWarning, pod,
        absl::StrCat("worker pod: has other numerics (", info.numerics_id(), ", the first had ",
                     promised_->numerics_id(), "): streams do not move between the two"));
  }
  return true;
}

void Fleet::Promise(const v1::AttachReply& info) {
  if (!promised_.has_value()) {
    promised_ = info;
  } else if (promised_->model_fingerprint().empty() && !info.model_fingerprint().empty()) {
    promised_->set_model_fingerprint(info.model_fingerprint());  // the first that says
  } else {
    return;
  }
  for (const auto& pod : pods_) pod->engine->Expect(*promised_);
}

void Fleet::Refresh(size_t pod, double now) {
  const Pod& of = *pods_[pod];
  PodRoom room = of.engine->Room(now);
  room.takes = room.takes && !Goes(of) && !LacksDrafter(of);
  rooms_[pod] = room;
  deadlines_[pod] = of.engine->NextDeadline();
}

void Fleet::AfterEvent(size_t pod, double now) {
  event_at_ = now;
  const bool some_stayed = num_staying_ > 0;
  const bool came = NoticeReadiness(pod, now);
  // The only verifier came back as another: no stream can go on there, but a new router can serve it.
  const WorkerSessions& workers = pods_[pod]->engine->workers();
  if (pods_.size() == 1 && !gave_up_ && idle() && workers.refused(kVerifierPeer) &&
      workers.info(kVerifierPeer) != nullptr) {
    gave_up_ = true;
    commands_.push_back(GiveUp{FailedPrecondition(
        "verifier: it is not the one that was served, the log says why, and nothing runs any more "
        "that could wait for that one: ends, so that another start takes what there is")});
  }
  if (single()) return;                     // TakeCommands asks the engine
  if (some_stayed != (num_staying_ > 0)) {  // pods that were told to stop go by it
    for (size_t other = 0; other < pods_.size(); ++other) Refresh(other, now);
  }
  bool took = TakeOver(pod, now);
  Refresh(pod, now);
  Collect(pod);
  if (came) {
    for (size_t other = 0; other < pods_.size(); ++other) {
      if (pods_[other]->ready || !TakeOver(other, now)) continue;
      took = true;
      Refresh(other, now);
      Collect(other);
    }
  }
  // A pod that served before only complains; but nobody is left that could serve.
  if (pods_.size() > 1 && !gave_up_ && NobodyFits()) {
    gave_up_ = true;
    commands_.push_back(GiveUp{FailedPrecondition(absl::StrCat(
        "none of the ", pods_.size(), " worker pods fits any more: the log says why of each"))});
  }
  if (num_waiting() == 0) return;
  if (took) {
    FillAll(now);
  } else {
    Fill(pod, now);
  }
}

// ---------------------------------------------------------------- requests that go elsewhere

bool Fleet::MayRunAt(size_t index, const Sequence& sequence) const {
  const Pod& pod = *pods_[index];
  if (!pod.ready || Goes(pod) || LacksDrafter(pod)) return false;
  return pod.engine->CanHold(sequence) &&
         (!HasOutput(sequence) ||
          pod.engine->workers().info(kVerifierPeer)->numerics_id() == sequence.numerics_id);
}

bool Fleet::MayRunSomewhere(const Sequence& sequence) const {
  for (size_t pod = 0; pod < pods_.size(); ++pod) {
    if (MayRunAt(pod, sequence)) return true;
  }
  return false;
}

bool Fleet::MayTry(size_t pod, const Sequence& sequence) const {
  return sequence.lost_rounds == 0 || pods_[pod]->heard_at > sequence.suspected_at;
}

bool Fleet::FitsElsewhere(size_t pod, const Sequence& sequence) const {
  for (size_t other = 0; other < pods_.size(); ++other) {
    if (other != pod && FitOf(other, sequence) == Fit::kNow) return true;
  }
  return false;
}

bool Fleet::TakeOver(size_t index, double now) {
  const Pod& pod = *pods_[index];
  Engine& engine = *pod.engine;
  if (pod.ready ? engine.num_queued() == 0 : engine.idle()) return false;
  const bool stays = pod.ready && !Goes(pod);
  // What waits where nothing runs found that other routers have the slots, or the pages: it tries
  // again soon, unless it need not wait.
  const bool alone = stays && engine.num_running() == 0;
  std::vector<std::unique_ptr<Sequence>> released = engine.Release(
      [&](const Sequence& sequence) {
        return alone ? FitsElsewhere(index, sequence) : stays || MayRunSomewhere(sequence);
      },
      now);
  if (released.empty()) return false;
  if (!pod.ready) {
    Log(LogLine::Level::kInfo, pod,
        absl::StrCat("worker pod: lost; ", released.size(), " requests move to others"));
  }
  Await(std::move(released), now);
  // A pod at which nothing runs has no event of its own before its next heartbeat.
  if (engine.admit_at() > now) check_at_ = std::min(check_at_, engine.admit_at());
  return true;
}

void Fleet::Await(std::vector<std::unique_ptr<Sequence>> released, double now) {
  if (num_waiting() == 0) check_at_ = now + CheckSeconds(options_.verifier_timeout_seconds);
  size_t num_new = 0;
  for (std::unique_ptr<Sequence>& sequence : released) {
    sequence->homeless_since = now;
    if (sequence->order == 0) {  // they came before those that wait here
      waiting_.insert(waiting_.begin() + static_cast<ptrdiff_t>(num_new++), std::move(sequence));
      continue;
    }
    const auto place = std::find_if(moving_.begin(), moving_.end(), [&](const auto& other) {
      return other->order > sequence->order;
    });
    moving_.insert(place, std::move(sequence));
  }
}

Fleet::Fit Fleet::FitOf(size_t pod, const Sequence& sequence) const {
  if (!MayRunAt(pod, sequence) || !MayTry(pod, sequence)) return Fit::kNever;
  return rooms_[pod].Fits(sequence.committed_len()) ? Fit::kNow : Fit::kLater;
}

void Fleet::Adopt(size_t pod, std::unique_ptr<Sequence> sequence, double now) {
  pods_[pod]->engine->Adopt(std::move(sequence), now);
  ++turn_;
  Refresh(pod, now);
  Collect(pod);
}

void Fleet::Fill(size_t pod, double now) {
  if (!rooms_[pod].takes) return;
  for (auto* list : {&moving_, &waiting_}) {
    for (auto it = list->begin(); it != list->end();) {
      const Fit fit = FitOf(pod, **it);
      if (fit == Fit::kLater) return;  // the older goes first
      if (fit == Fit::kNever) {
        ++it;
        continue;
      }
      std::unique_ptr<Sequence> sequence = std::move(*it);
      it = list->erase(it);
      Adopt(pod, std::move(sequence), now);
    }
  }
}

std::optional<size_t> Fleet::Place(const Sequence& sequence, const std::vector<bool>& kept) const {
  std::vector<PodRoom> rooms = rooms_;
  for (size_t pod = 0; pod < rooms.size(); ++pod) {
    rooms[pod].takes = !kept[pod] && FitOf(pod, sequence) == Fit::kNow;
  }
  return PlaceRequest(rooms, sequence.committed_len(), turn_);
}

void Fleet::FillAll(double now) {
  // Pods that have no slot, or that an older one waits for: it goes first there.
  std::vector<bool> kept(pods_.size());
  for (size_t pod = 0; pod < pods_.size(); ++pod) {
    kept[pod] = !rooms_[pod].takes || rooms_[pod].num_free_slots == 0;
  }
  for (auto* list : {&moving_, &waiting_}) {
    for (auto it = list->begin(); it != list->end();) {
      if (std::find(kept.begin(), kept.end(), false) == kept.end()) return;
      if (const std::optional<size_t> pod = Place(**it, kept)) {
        std::unique_ptr<Sequence> sequence = std::move(*it);
        it = list->erase(it);
        Adopt(*pod, std::move(sequence), now);
        continue;
      }
      for (size_t pod = 0; pod < pods_.size(); ++pod) {
        if (FitOf(pod, **it) != Fit::kNever) kept[pod] = true;
      }
      ++it;
    }
  }
}

void Fleet::CheckWaiting(double now) {
  for (auto* list : {&moving_, &waiting_}) {
    for (std::unique_ptr<Sequence>& sequence : *list) {
      if (MayRunSomewhere(*sequence)) {
        sequence->homeless_since = now;
      } else if (now - sequence->homeless_since >= options_.verifier_timeout_seconds) {
        End(*sequence,
            Unavailable(absl::StrCat("no verifier that could go on has served for more than ",
                                     options_.verifier_timeout_seconds, " s")));
        sequence.reset();
      }
    }
    std::erase(*list, nullptr);
  }
  // Room also comes with time alone.
  for (size_t pod = 0; pod < pods_.size(); ++pod) Refresh(pod, now);
  FillAll(now);
  check_at_ = num_waiting() > 0 ? now + CheckSeconds(options_.verifier_timeout_seconds)
                                : std::numeric_limits<double>::infinity();
}

// ---------------------------------------------------------------- clients' events

std::optional<Engine::Refusal> Fleet::RefusesAll(double now) const {
  if (single()) return pods_.front()->engine->RefusesAll(now);
  if (pods_.empty()) return Engine::Refusal{Unavailable("no worker pod is known yet"), 1000};
  if (draining_) return pods_.front()->engine->RefusesAll(now);
  if (!ready() && now - down_since_ >= options_.verifier_timeout_seconds) {
    return Engine::Refusal{Unavailable(absl::StrCat("all verifiers have been gone for more than ",
                                                    options_.verifier_timeout_seconds, " s")),
                           1000};
  }
  if (options_.max_queue == 0 || waiting_.size() < options_.max_queue) return std::nullopt;
  return QueueIsFull();
}

Engine::Refusal Fleet::QueueIsFull() const {
  size_t num_slots = 0;
  for (const auto& pod : pods_) num_slots += pod->engine->num_slots();
  return Engine::QueueIsFull(options_.max_queue, waiting_.size(), num_slots,
                             pods_[LargestPod()]->engine->mean_service_seconds());
}

size_t Fleet::LargestPod() const {
  size_t largest = 0;
  for (size_t pod = 1; pod < pods_.size(); ++pod) {
    if (rooms_[pod].num_pages > rooms_[largest].num_pages) largest = pod;
  }
  return largest;
}

void Fleet::OnRequest(CallId call, GenerationRequest request, double now) {
  if (const std::optional<Engine::Refusal> refusal = RefusesAll(now)) {
    commands_.push_back(FinishCall{call, refusal->status, 0, refusal->retry_milliseconds});
    return;
  }
  if (single()) {
    pods_.front()->engine->OnRequest(call, std::move(request), now);
    return AfterEvent(0, now);
  }
  if (num_waiting() == 0) {
    const auto num_tokens = static_cast<uint32_t>(request.prompt_token_ids.size());
    if (const std::optional<size_t> pod = PlaceRequest(rooms_, num_tokens, turn_)) {
      ++turn_;
      pods_[*pod]->engine->OnRequest(call, std::move(request), now);
      return AfterEvent(*pod, now);
    }
  }
  const size_t checker = LargestPod();
  std::unique_ptr<Sequence> sequence =
      pods_[checker]->engine->Accept(call, std::move(request), now);
  Collect(checker);
  if (sequence == nullptr) return;
  sequence->homeless_since = now;
  if (num_waiting() == 0) check_at_ = now + CheckSeconds(options_.verifier_timeout_seconds);
  waiting_.push_back(std::move(sequence));
  FillAll(now);
  if (waiting_.size() <= options_.max_queue) return;
  const std::unique_ptr<Sequence> refused = std::move(waiting_.back());
  waiting_.pop_back();
  const Engine::Refusal refusal = QueueIsFull();
  commands_.push_back(FinishCall{refused->call, refusal.status, 0, refusal.retry_milliseconds});
  ledger_.request_ids.erase(refused->request.request_id);
}

std::optional<SlotLife> Fleet::OnCancel(CallId call, double now) {
  if (single()) {
    const std::optional<SlotLife> slot = pods_.front()->engine->OnCancel(call, now);
    AfterEvent(0, now);
    return slot;
  }
  for (auto* list : {&moving_, &waiting_}) {
    const auto it = std::find_if(list->begin(), list->end(),
                                 [call](const auto& sequence) { return sequence->call == call; });
    if (it == list->end()) continue;
    const std::unique_ptr<Sequence> cancelled = std::move(*it);
    list->erase(it);
    ledger_.request_ids.erase(cancelled->request.request_id);
    FillAll(now);  // others may have waited for this one
    return cancelled->last_slot;
  }
  for (size_t pod = 0; pod < pods_.size(); ++pod) {
    if (!pods_[pod]->engine->Has(call)) continue;
    const std::optional<SlotLife> slot = pods_[pod]->engine->OnCancel(call, now);
    AfterEvent(pod, now);
    return slot;
  }
  return std::nullopt;
}

void Fleet::End(const Sequence& sequence, const absl::Status& status) {
  commands_.push_back(
      FinishCall{sequence.call, status, sequence.output.num_tokens(), 0, sequence.last_slot});
  ledger_.request_ids.erase(sequence.request.request_id);
  ++left_.finished;
}

void Fleet::EndWaiting(const absl::Status& status) {
  for (auto* list : {&moving_, &waiting_}) {
    for (const auto& sequence : *list) End(*sequence, status);
    list->clear();
  }
}

void Fleet::Drain() {
  draining_ = true;
  for (const auto& pod : pods_) pod->engine->Drain();
}

void Fleet::Stop(double now) {
  draining_ = true;
  EndWaiting(Unavailable("the server stops"));
  for (size_t pod = 0; pod < pods_.size(); ++pod) {
    pods_[pod]->engine->Stop(now);
    AfterEvent(pod, now);
  }
}

// ---------------------------------------------------------------- workers' events

void Fleet::OnDraftReply(SessionId session, v1::DraftReply& reply, double now) {
  const std::optional<size_t> pod = Find(session);
  if (!pod.has_value()) return;
  pods_[*pod]->engine->OnDraftReply(session, reply, now);
  AfterEvent(*pod, now);
}

void Fleet::OnVerifierReply(SessionId session, v1::VerifierReply& reply, double now) {
  const std::optional<size_t> pod = Find(session);
  if (!pod.has_value()) return;
  HearFrom(*pod, session, now);
  pods_[*pod]->engine->OnVerifierReply(session, reply, now);
  AfterEvent(*pod, now);
}

void Fleet::OnSessionLost(Worker worker, SessionId session, const std::string& why, double now) {
  const std::optional<size_t> pod = Find(session);
  if (!pod.has_value()) return;
  pods_[*pod]->engine->OnSessionLost(worker, session, why, now);
  AfterEvent(*pod, now);
}

void Fleet::OnPong(Worker worker, SessionId session, const v1::WatchPong& pong, double now) {
  const std::optional<size_t> pod = Find(session);
  if (!pod.has_value()) return;
  if (worker == Worker::kVerifier) HearFrom(*pod, session, now);
  pods_[*pod]->engine->OnPong(worker, session, pong, now);
  AfterEvent(*pod, now);
}

void Fleet::Tick(double now) {
  for (size_t pod = 0; pod < pods_.size(); ++pod) {
    if (!single() && deadlines_[pod] > now) continue;
    pods_[pod]->engine->Tick(now);
    AfterEvent(pod, now);
  }
  if (now >= check_at_) CheckWaiting(now);
}

double Fleet::NextDeadline() const {
  if (single()) return pods_.front()->engine->NextDeadline();
  double deadline = check_at_;
  for (const double of_pod : deadlines_) deadline = std::min(deadline, of_pod);
  return deadline;
}

// ---------------------------------------------------------------- commands

bool Fleet::Dress(size_t index, EngineCommand* command) {
  Pod& pod = *pods_[index];
  if (auto* line = std::get_if<LogLine>(command)) {
    line->pod = pod.spec.verifier;
    return true;
  }
  const auto* give_up = std::get_if<GiveUp>(command);
  if (give_up == nullptr || pods_.size() == 1) return true;
  // One pod that does not fit is no reason for the others to end.
  if (NobodyFits()) {
    gave_up_ = true;
    return true;
  }
  const std::string complaint(give_up->status.message());
  if (pod.complaint == complaint) return false;
  pod.complaint = complaint;
  LogLine line{.level = LogLine::Level::kError,
               .text = absl::StrCat(complaint, "; the pod gets no requests")};
  if (!give_up->summary.empty()) {
    line.summary = absl::StrCat(give_up->summary, "; the pod gets no requests");
  }
  line.pod = pod.spec.verifier;
  *command = std::move(line);
  return true;
}

void Fleet::Collect(size_t pod) {
  EngineCommands commands = pods_[pod]->engine->TakeCommands();
  if (commands.empty()) return;
  if (sending_.empty() || sending_.back() != pods_[pod]->id) sending_.push_back(pods_[pod]->id);
  for (EngineCommand& command : commands) {
    if (Dress(pod, &command)) commands_.push_back(std::move(command));
  }
}

EngineCommands Fleet::TakeCommands() {
  RemoveLeft();
  if (single()) {
    if (commands_.empty()) return pods_.front()->engine->TakeCommands();
    Collect(0);
  }
  return std::exchange(commands_, {});
}

void Fleet::OnCommandsSent(double now) {
  if (single()) pods_.front()->engine->OnCommandsSent(now);
  for (const PodId id : sending_) {
    if (const auto pod = Find(SessionId{id} << kPodShift)) {
      pods_[*pod]->engine->OnCommandsSent(now);
    }
  }
  sending_.clear();
}

// ---------------------------------------------------------------- state

const v1::AttachReply* Fleet::promised() const {
  if (promised_.has_value()) return &*promised_;
  return pods_.size() == 1 ? pods_.front()->engine->workers().info(kVerifierPeer) : nullptr;
}

bool Fleet::drafters_settled() const {
  return std::all_of(pods_.begin(), pods_.end(),
                     [](const auto& pod) { return pod->engine->workers().drafter_settled(); });
}

bool Fleet::idle() const {
  return num_waiting() == 0 && std::all_of(pods_.begin(), pods_.end(),
                                           [](const auto& pod) { return pod->engine->idle(); });
}

std::string Fleet::drafter_name() const {
  for (const auto& pod : pods_) {
    if (const std::string& name = pod->engine->workers().drafter_name(); !name.empty()) return name;
  }
  return "";
}

FleetState Fleet::State() const {
  FleetState state;
  state.counts = left_;
  state.audit = ledger_.audit.stats();
  state.audit_failed = ledger_.audit.failed();
  for (const auto& pod : pods_) state.Add(*pod->engine);
  state.gauges.queued += static_cast<int>(num_waiting());
  return state;
}

}  // namespace tandem
