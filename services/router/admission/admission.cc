#include "services/router/admission/admission.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/peer_text.h"
#include "common/status.h"
#include "common/token_hash.h"

namespace tandem {
namespace {

// Orders of replays begin here: replays are the youngest of all.
constexpr uint64_t kReplayOrder = uint64_t{1} << 63;
// Weight of the newest request in the mean service time.
constexpr double kServiceShare = 0.1;

// Seconds between two checks of what waits.
double CheckSeconds(double verifier_timeout_seconds) {
  return std::clamp(verifier_timeout_seconds / 4, 0.01, 1.0);
}

absl::Status VerifiersGone(size_t num_pods, double seconds) {
  return Unavailable(absl::StrCat(num_pods == 1 ? "the verifier has" : "all verifiers have",
                                  " been gone for more than ", seconds, " s"));
}

}  // namespace

Admission::Admission(const EngineOptions& options, const Tokenizer* tokenizer,
                     EngineObserver* observer, uint64_t turn)
    : options_(options),
      tokenizer_(tokenizer),
      observer_(observer),
      replays_(tokenizer),
      turn_(turn) {}

// ---------------------------------------------------------------- refusals

std::optional<Refusal> Admission::RefusesAll(const PodsView& view, double now) const {
  if (view.pods.empty()) return Refusal{Unavailable("no worker pod is known yet"), 1000};
  if (draining_) {
    return Refusal{
        Unavailable("the server is draining: it finishes what runs and takes nothing new")};
  }
  if (!view.serves && now - view.down_since >= options_.verifier_timeout_seconds) {
    return Refusal{VerifiersGone(view.pods.size(), options_.verifier_timeout_seconds), 1000};
  }
  // Whatever waits would run already if there were a slot for it. With no queue at all, only Next
  // tells.
  if (options_.max_queue > 0 && waiting_.size() >= options_.max_queue) return QueueIsFull(view);
  return std::nullopt;
}

Refusal Admission::QueueIsFull(const PodsView& view) const {
  size_t num_slots = 0;
  for (const PodView& pod : view.pods) num_slots += pod.num_slots;
  const double rounds = static_cast<double>(waiting_.size() + 1) /
                        static_cast<double>(std::max<size_t>(1, num_slots));
  return {ResourceExhausted(absl::StrCat("the queue is full: ", options_.max_queue,
                                         " requests wait (--max-queue)")),
          static_cast<int>(std::clamp(1000 * rounds * mean_service_seconds_, 100.0, 10000.0))};
}

absl::Status Admission::CheckRequest(const GenerationRequest& request, uint64_t capacity,
                                     double now) const {
  if (request.choice == 0 && request_ids_.contains(request.request_id)) {
    return absl::AlreadyExistsError(
        absl::StrCat("request_id: ", QuotedShort(request.request_id),
                     " is running; allowed: one that is not, or empty for a new one"));
  }
  if (!quarantine_.empty() && Refuses(HashTokens(request.prompt_token_ids), now)) {
    return Quarantined();
  }
  if (capacity > 0 && request.prompt_token_ids.size() + 1 > capacity) {
    return ResourceExhausted(absl::StrCat(
        "prompt: ", request.prompt_token_ids.size(), " tokens; allowed: ", capacity - 1,
        ", which is what the KV cache holds with one token more (--kv-cache-bytes)"));
  }
  return absl::OkStatus();
}

bool Admission::Refuses(uint64_t prompt_hash, double now) const {
  return quarantine_.Find(prompt_hash, now).num >= options_.max_lost_rounds;
}

absl::Status Admission::Quarantined() const {
  return FailedPrecondition(
      absl::StrCat("quarantined: the verifier died ", options_.max_lost_rounds,
                   " times in a row while computing this prompt; it is refused for ",
                   Quarantine::kSeconds, " s"));
}

void Admission::Enqueue(CallId call, GenerationRequest request, const PodsView& view, double now) {
  // The other choices of a call that was taken up are part of it.
  const bool is_new = request.choice == 0;
  if (const auto refusal = is_new ? RefusesAll(view, now) : std::nullopt) {
    commands_.push_back(FinishCall{call, refusal->status, 0, refusal->retry_milliseconds});
    return;
  }
  quarantine_.EraseExpired(now);
  const uint64_t capacity = view.LargestCapacity();
  if (absl::Status status = CheckRequest(request, capacity, now); !status.ok()) {
    commands_.push_back(FinishCall{call, status, 0, 0});
    return;
  }
  if (capacity > 0) {
    request.LimitMaxTokens(capacity - request.prompt_token_ids.size(),
                           absl::StrCat("the KV cache of ", capacity, " tokens"));
  }
  request.open.set_audit(request.is_sampled() && !request.seed_given &&
                         request.open.lenience() == 1 && IsAudited(options_, call));
  request_ids_.insert(request.request_id);
  const double arrived_at = request.arrived_at > 0 ? request.arrived_at : now;
  auto sequence = std::make_unique<Sequence>(call, std::move(request), arrived_at, tokenizer_);
  sequence->homeless_since = now;
  if (!quarantine_.empty()) {
    sequence->faults.TakeOver(quarantine_.Find(sequence->prompt_hash(), now));
  }
  BeginChecks(now);
  waiting_.push_back(std::move(sequence));
}

void Admission::RefuseOverflow(const PodsView& view) {
  if (waiting_.size() <= options_.max_queue || waiting_.back()->request.choice > 0) return;
  const std::unique_ptr<Sequence> refused = std::move(waiting_.back());
  waiting_.pop_back();
  request_ids_.erase(request_ids_.find(refused->request.request_id));
  const Refusal refusal = QueueIsFull(view);
  commands_.push_back(FinishCall{refused->call, refusal.status, 0, refusal.retry_milliseconds});
}

// ---------------------------------------------------------------- what waits

std::unique_ptr<Sequence> Admission::TakeBack(CallId call) {
  for (Waiting* list : {&moving_, &waiting_}) {
    const auto it = std::find_if(list->begin(), list->end(),
                                 [call](const auto& sequence) { return sequence->call == call; });
    if (it == list->end()) continue;
    std::unique_ptr<Sequence> sequence = std::move(*it);
    list->erase(it);
    return sequence;
  }
  return nullptr;
}

void Admission::Return(std::unique_ptr<Sequence> sequence, double now) {
  if (sequence->is_replay()) {
    if (!draining_) replays_.Return(std::move(sequence));
    return;
  }
  BeginChecks(now);
  sequence->homeless_since = now;
  const auto place = std::find_if(
      moving_.begin(), moving_.end(),
      [&](const std::unique_ptr<Sequence>& other) { return other->order > sequence->order; });
  moving_.insert(place, std::move(sequence));
}

void Admission::BeginChecks(double now) {
  check_at_ = std::min(check_at_, now + CheckSeconds(options_.verifier_timeout_seconds));
}

bool Admission::MayRunSomewhere(const PodsView& view, const Sequence& sequence) const {
  const uint64_t largest = view.LargestCapacity();
  return std::any_of(view.pods.begin(), view.pods.end(),
                     [&](const PodView& pod) { return MayRun(pod, sequence, largest); });
}

bool Admission::AwaitsPod(const PodView& pod) const {
  return pod.serves && std::any_of(moving_.begin(), moving_.end(),
                                   [&](const auto& sequence) { return sequence->pod == pod.id; });
}

void Admission::NoteServed(const PodsView& view, double now) {
  for (Waiting* list : {&moving_, &waiting_}) {
    for (const std::unique_ptr<Sequence>& sequence : *list) {
      if (MayRunSomewhere(view, *sequence)) sequence->homeless_since = now;
    }
  }
}

void Admission::Check(const PodsView& view, double now) {
  const double limit = options_.verifier_timeout_seconds;
  NoteServed(view, now);
  for (Waiting* list : {&moving_, &waiting_}) {
    for (std::unique_ptr<Sequence>& sequence : *list) {
      const bool all_gone = !view.serves && now - view.down_since >= limit;
      if (!all_gone && now - sequence->homeless_since < limit) continue;
      End(*sequence,
          all_gone ? VerifiersGone(view.pods.size(), limit)
                   : Unavailable(absl::StrCat(
                         "no verifier that could go on has served for more than ", limit, " s")),
          now);
      sequence.reset();
    }
    std::erase(*list, nullptr);
  }
  check_at_ =
      num_waiting() > 0 ? now + CheckSeconds(limit) : std::numeric_limits<double>::infinity();
}

// ---------------------------------------------------------------- placing

std::unique_ptr<Sequence> Admission::Admit(std::unique_ptr<Sequence> sequence, double now) {
  if (sequence->order > 0) return sequence;
  sequence->order = ++last_order_ + (sequence->is_replay() ? kReplayOrder : 0);
  sequence->account.Admitted(now);
  if (!sequence->is_replay()) observer_->OnAdmitted(now - sequence->account.arrived_at());
  return sequence;
}

std::vector<size_t> Admission::Choices(const PodsView& view, const std::vector<size_t>& free_pods,
                                       const Sequence& sequence, uint64_t largest) const {
  std::vector<size_t> choices;
  std::optional<size_t> own;  // the second choice
  for (const size_t index : free_pods) {
    const PodView& pod = view.pods[index];
    if (!WasHeardSince(pod, sequence)) continue;
    if (Suits(pod, sequence, largest)) {
      choices.push_back(index);
    } else if (MayRun(pod, sequence, largest)) {
      own = index;
    }
  }
  if (!own.has_value()) return choices;
  const bool any_suits = std::any_of(view.pods.begin(), view.pods.end(), [&](const PodView& pod) {
    return Suits(pod, sequence, largest);
  });
  if (!any_suits) choices.push_back(*own);
  return choices;
}

std::optional<Admission::Placement> Admission::Next(const PodsView& view,
                                                    const std::vector<size_t>& candidates,
                                                    double now) {
  if (num_waiting() == 0) return NextReplay(view, candidates, now);
  // Pods that have a slot, and that nothing older waits for.
  std::vector<size_t> free_pods;
  for (const size_t index : candidates) {
    const PodView& pod = view.pods[index];
    if (pod.serves && pod.room.takes && pod.room.num_free_slots > 0) free_pods.push_back(index);
  }
  const uint64_t largest = free_pods.empty() ? 0 : view.LargestCapacity();
  for (Waiting* list : {&moving_, &waiting_}) {
    for (auto it = list->begin(); it != list->end() && !free_pods.empty(); ++it) {
      const std::vector<size_t> choices = Choices(view, free_pods, **it, largest);
      if (const auto pod = PlaceRequest(view.pods, choices, (*it)->committed_len(), turn_)) {
        ++turn_;
        Placement placement{*pod, Admit(std::move(*it), now)};
        list->erase(it);
        return placement;
      }
      // It waits for these pods, and younger requests do not pass it there.
      std::erase_if(free_pods, [&](size_t pod) {
        return std::find(choices.begin(), choices.end(), pod) != choices.end();
      });
    }
  }
  for (const PodView& pod : view.pods) {
    if (pod.room.takes_at > now) check_at_ = std::min(check_at_, pod.room.takes_at);
  }
  return std::nullopt;
}

std::optional<Admission::Placement> Admission::NextReplay(const PodsView& view,
                                                          const std::vector<size_t>& candidates,
                                                          double now) {
  if (replays_.empty()) return std::nullopt;
  for (const size_t index : candidates) {
    const PodView& pod = view.pods[index];
    if (!pod.open || pod.draining || !pod.room.empty) continue;
    if (std::unique_ptr<Sequence> replay = replays_.Take(pod.numerics_id)) {
      return Placement{index, Admit(std::move(replay), now)};
    }
  }
  return std::nullopt;
}

// ---------------------------------------------------------------- ends

void Admission::TakeReport(PodReport report, double now) {
  switch (report.kind) {
    case PodReport::Kind::kFinished:
      return OnFinished(*report.sequence, report.status, now);
    case PodReport::Kind::kPreempted:
      return Return(std::move(report.sequence), now);
    case PodReport::Kind::kSuspect:
      return OnSuspect(*report.sequence, now);
    case PodReport::Kind::kPrompt:
      return OnPrompt(report.prompt, now);
  }
}

void Admission::OnFinished(const Sequence& sequence, const absl::Status& status, double now) {
  if (sequence.is_replay()) return;
  End(sequence, status, now);
  if (!status.ok()) return;
  const double service_seconds = now - sequence.account.admitted_at();
  mean_service_seconds_ += kServiceShare * (service_seconds - mean_service_seconds_);
  if (!draining_ && IsAudited(options_, sequence.call)) replays_.Push(sequence);
}

void Admission::OnSuspect(const Sequence& sequence, double now) {
  if (sequence.is_replay()) return Remember(sequence, now);
  End(sequence,
      FailedPrecondition(absl::StrCat("quarantined: the verifier died ",
                                      sequence.faults.verifiers_lost(),
                                      " times in a row while computing this request")),
      now);
}

// ---------------------------------------------------------------- quarantine

void Admission::Keep(const PromptDeaths& prompt, double now) {
  if (prompt.deaths.num > 0) {
    quarantine_.Add(prompt.prompt_hash, prompt.deaths, now);
  } else if (!Refuses(prompt.prompt_hash, now)) {
    quarantine_.VerifierHolds(prompt.prompt_hash, prompt.deaths.rows);
  }
  if (Refuses(prompt.prompt_hash, now)) replays_.Drop(prompt.prompt_hash);
}

void Admission::OnPrompt(const PromptDeaths& prompt, double now) {
  Keep(prompt, now);
  if (!prompt.concerns_copies) return;
  for (Waiting* list : {&moving_, &waiting_}) {
    for (const std::unique_ptr<Sequence>& sequence : *list) {
      if (sequence->prompt_is_proven() || sequence->prompt_hash() != prompt.prompt_hash) continue;
      sequence->faults.TakeOver(prompt.deaths);
    }
  }
}

bool Admission::IsQuarantined(const Sequence& sequence, double now) const {
  return !sequence.is_replay() && !sequence.prompt_is_proven() &&
         Refuses(sequence.prompt_hash(), now);
}

void Admission::EndQuarantined(const Sequence& sequence) { Finish(sequence, Quarantined()); }

bool Admission::EndWaitingCopies(double now) {
  const size_t num_before = num_waiting();
  for (Waiting* list : {&moving_, &waiting_}) {
    for (std::unique_ptr<Sequence>& sequence : *list) {
      if (!IsQuarantined(*sequence, now)) continue;
      EndQuarantined(*sequence);
      sequence.reset();
    }
    std::erase(*list, nullptr);
  }
  return num_waiting() < num_before;
}

void Admission::Remember(const Sequence& sequence, double now) {
  if (sequence.faults.verifiers_lost() > 0 || !quarantine_.empty()) {
    Keep(sequence.witness().Report(), now);
  }
}

// ---------------------------------------------------------------- the end of a request

void Admission::Forget(const Sequence& sequence, double now) {
  request_ids_.erase(request_ids_.find(sequence.request.request_id));
  Remember(sequence, now);
}

void Admission::End(const Sequence& sequence, const absl::Status& status, double now) {
  Finish(sequence, status);
  Remember(sequence, now);
}

void Admission::Finish(const Sequence& sequence, const absl::Status& status) {
  commands_.push_back(
      FinishCall{sequence.call, status, sequence.output.num_tokens(), 0, sequence.last_slot});
  request_ids_.erase(request_ids_.find(sequence.request.request_id));
  ++num_finished_;
}

void Admission::Drain() {
  draining_ = true;
  replays_.Clear();
}

void Admission::EndAll(const absl::Status& status) {
  for (Waiting* list : {&moving_, &waiting_}) {
    for (const std::unique_ptr<Sequence>& sequence : *list) Finish(*sequence, status);
    list->clear();
  }
}

}  // namespace tandem
