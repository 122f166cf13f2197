#include "services/router/engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "services/router/draft_length.h"

namespace tandem {
namespace {

// In a row, without progress in between.
constexpr int kMaxResyncs = 3;
constexpr int kMaxLostRounds = 5;

// What a worker says it computed, as far as that can be.
double ComputeSeconds(double reported, double round_trip) {
  return reported > 0 ? std::min(reported, round_trip) : 0.0;
}

// Only chains are drafted: an empty list, or every token the child of the one before it.
bool IsChain(const v1::ProposeResult& result) {
  if (result.parents().empty()) return true;
  if (result.parents_size() != result.draft_token_ids_size()) return false;
  for (int i = 0; i < result.parents_size(); ++i) {
    if (result.parents(i) != i - 1) return false;
  }
  return true;
}

}  // namespace

Engine::Engine(const EngineOptions& options, const Tokenizer* tokenizer)
    : options_(options), tokenizer_(tokenizer), workers_(options.workers, tokenizer, &commands_) {}

void Engine::Log(LogLine::Level level, std::string text) {
  commands_.push_back(LogLine{level, std::move(text)});
}

// ---------------------------------------------------------------- events

void Engine::Start(double now) {
  verifier_down_since_ = now;
  workers_.Start(now);
}

void Engine::OnRequest(CallId call, GenerationRequest request, double now) {
  absl::Status refused;
  int retry_milliseconds = 0;
  if (draining_) {
    refused = Unavailable("the server is draining: it finishes what runs and takes nothing new");
  } else if (!verifier_up_ && now - verifier_down_since_ >= options_.verifier_timeout_seconds) {
    refused = Unavailable(absl::StrCat("the verifier has been gone for more than ",
                                       options_.verifier_timeout_seconds, " s"));
    retry_milliseconds = 1000;
  } else if (request_ids_.count(request.request_id) > 0) {
    refused = absl::AlreadyExistsError(
        absl::StrCat("request_id: \"", request.request_id,
                     "\" is running; allowed: one that is not, or empty for a new one"));
  }
  if (!refused.ok()) {
    commands_.push_back(FinishCall{call, refused, 0, retry_milliseconds});
    return;
  }
  request_ids_.insert(request.request_id);
  queue_.push_back(std::make_unique<Sequence>(call, std::move(request), now, tokenizer_));
  Pump(now);
  if (queue_.size() > options_.max_queue) {
    request_ids_.erase(queue_.back()->request.request_id);
    queue_.pop_back();
    commands_.push_back(
        FinishCall{call,
                   ResourceExhausted(absl::StrCat("the queue is full: ", options_.max_queue,
                                                  " requests wait (--max-queue)")),
                   0, RetryMilliseconds()});
  }
}

void Engine::OnCancel(CallId call, double now) {
  for (auto it = queue_.begin(); it != queue_.end(); ++it) {
    if ((*it)->call != call) continue;
    request_ids_.erase((*it)->request.request_id);
    queue_.erase(it);
    return;
  }
  for (uint32_t id = 0; id < slots_.size(); ++id) {
    if (slots_[id].sequence != nullptr && slots_[id].sequence->call == call) {
      FreeSlot(id);
      break;
    }
  }
  Pump(now);
}

void Engine::OnDraftReply(SessionId session, v1::DraftReply& reply, double now) {
  if (workers_.OnDraftReply(session, reply, now)) {
    Pump(now);
    return;
  }
  if (!workers_.IsCurrent(Worker::kDrafter, session)) return;
  const bool of_batch =
      propose_.has_value() && propose_->session == session && propose_->id == reply.id();
  switch (reply.kind_case()) {
    case v1::DraftReply::kPropose:
      if (of_batch) OnPropose(*reply.mutable_propose(), now);
      break;
    case v1::DraftReply::kLogProbChunk:
      if (of_batch) ForwardLogProbs(reply, now);
      break;
    case v1::DraftReply::kError:
      OnCommandRefused(Worker::kDrafter, of_batch, reply.error(), now);
      break;
    default:
      break;  // an answer to UpdateSlots: nothing to learn from it
  }
  Pump(now);
}

void Engine::OnVerifierReply(SessionId session, v1::VerifierReply& reply, double now) {
  if (workers_.OnVerifierReply(session, reply, now)) {
    Pump(now);
    return;
  }
  if (!workers_.IsCurrent(Worker::kVerifier, session)) return;
  const bool of_batch =
      verify_.has_value() && verify_->session == session && verify_->id == reply.id();
  switch (reply.kind_case()) {
    case v1::VerifierReply::kVerify:
      if (of_batch) OnVerify(*reply.mutable_verify(), now);
      break;
    case v1::VerifierReply::kError:
      OnCommandRefused(Worker::kVerifier, of_batch, reply.error(), now);
      break;
    default:
      break;
  }
  Pump(now);
}

void Engine::OnCommandRefused(Worker worker, bool of_batch, const v1::WorkerError& error,
                              double now) {
  const std::string why = absl::StrCat("it refused a command: ", error.message());
  if (of_batch) {
    workers_.Drop(worker, why, now);
  } else {  // of a ring that is given up already, or of slots that it does not have
    Log(LogLine::Level::kWarning, absl::StrCat(WorkerName(worker), ": ", why));
  }
}

void Engine::OnSessionLost(Worker worker, SessionId session, const std::string& why, double now) {
  workers_.OnLost(worker, session, why, now);
  Pump(now);
}

void Engine::Tick(double now) {
  workers_.Tick(now);
  if (propose_.has_value() && now - propose_->sent_at >= options_.drafter_timeout_seconds) {
    workers_.Drop(Worker::kDrafter,
                  absl::StrCat("no drafts within ", options_.drafter_timeout_seconds, " s"), now);
  }
  NoticeLostSessions(now);
  CheckVerifierBudget(now);
  Pump(now);
}

void Engine::Drain() { draining_ = true; }

void Engine::Stop(double now) {
  draining_ = true;
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
  return deadline;
}

// ---------------------------------------------------------------- slots and queue

size_t Engine::num_running() const {
  return static_cast<size_t>(std::count_if(
      slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.sequence != nullptr; }));
}

void Engine::Pump(double now) {
  NoticeLostSessions(now);
  AdmitFromQueue(now);
  if (verifier_up_ && !propose_.has_value() && !verify_.has_value()) {
    if (!SendPropose(now)) SendVerify({}, now);
  }
  if (!propose_.has_value()) SendCloses(Worker::kDrafter);
  if (!verify_.has_value()) SendCloses(Worker::kVerifier);
}

void Engine::NoticeLostSessions(double now) {
  if (const SessionId session = workers_.ready_session(Worker::kDrafter);
      session != drafter_session_) {
    drafter_session_ = session;
    propose_.reset();  // its slots are decoded plainly, or proposed anew
    drafter_closes_.clear();
    for (Slot& slot : slots_) {
      slot.drafter.open = false;
      slot.drafter.cached_len = 0;
    }
  }
  const SessionId session = workers_.ready_session(Worker::kVerifier);
  if (session == verifier_session_) return;
  verifier_session_ = session;
  if (verify_.has_value()) {
    // Its outcome is not known, so the round may be drawn again.
    const VerifyBatch lost = *std::exchange(verify_, std::nullopt);
    for (const VerifyBatch::Item& item : lost.items) {
      Sequence* sequence = Find(item.slot, item.serial);
      if (sequence == nullptr || ++sequence->lost_rounds <= kMaxLostRounds) continue;
      FinishSlot(item.slot, Internal(absl::StrCat("the verifier failed ", sequence->lost_rounds,
                                                  " times in a row while computing this request")));
    }
  }
  verifier_closes_.clear();
  for (Slot& slot : slots_) {
    slot.verifier.open = false;
    slot.verifier.cached_len = 0;
  }
  if (verifier_up_) verifier_down_since_ = now;
  verifier_up_ = session != 0;
  if (verifier_up_ && slots_.empty()) {
    slots_.resize(
        std::min(options_.workers.max_slots, workers_.info(Worker::kVerifier)->max_slots()));
  }
}

void Engine::AdmitFromQueue(double now) {
  if (!verifier_up_) return;
  for (Slot& slot : slots_) {
    if (queue_.empty()) return;
    if (slot.sequence != nullptr) continue;
    slot.sequence = std::move(queue_.front());
    queue_.pop_front();
    slot.sequence->serial = ++last_serial_;
    slot.sequence->account.Admitted(now);
    for (WorkerSlot* at_worker : {&slot.verifier, &slot.drafter}) {
      ++at_worker->epoch;
      at_worker->open = false;
      at_worker->cached_len = 0;
    }
  }
}

Sequence* Engine::Find(uint32_t slot_id, uint64_t serial) {
  Sequence* sequence = slots_[slot_id].sequence.get();
  return sequence != nullptr && sequence->serial == serial ? sequence : nullptr;
}

void Engine::FinishSlot(uint32_t slot_id, const absl::Status& status) {
  const Sequence& sequence = *slots_[slot_id].sequence;
  commands_.push_back(FinishCall{sequence.call, status, sequence.output.num_tokens(), 0});
  FreeSlot(slot_id);
}

void Engine::FreeSlot(uint32_t slot_id) {
  Slot& slot = slots_[slot_id];
  const auto close = [&](const WorkerSlot& at_worker, std::vector<v1::SlotClose>* closes) {
    if (!at_worker.open) return;
    closes->emplace_back();
    closes->back().set_slot(slot_id);
    closes->back().set_slot_epoch(at_worker.epoch);
  };
  close(slot.drafter, &drafter_closes_);
  close(slot.verifier, &verifier_closes_);
  request_ids_.erase(slot.sequence->request.request_id);
  slot.sequence.reset();
}

void Engine::EndEverything(const absl::Status& status) {
  for (uint32_t id = 0; id < slots_.size(); ++id) {
    if (slots_[id].sequence != nullptr) FinishSlot(id, status);
  }
  for (const std::unique_ptr<Sequence>& queued : queue_) {
    commands_.push_back(FinishCall{queued->call, status, 0, 0});
    request_ids_.erase(queued->request.request_id);
  }
  queue_.clear();
}

void Engine::CheckVerifierBudget(double now) {
  if (verifier_up_ || now - verifier_down_since_ < options_.verifier_timeout_seconds) return;
  EndEverything(Unavailable(absl::StrCat("the verifier has been gone for more than ",
                                         options_.verifier_timeout_seconds, " s")));
}

int Engine::RetryMilliseconds() const {
  const double rounds = static_cast<double>(queue_.size() + 1) / std::max<size_t>(1, slots_.size());
  return static_cast<int>(std::clamp(1000 * rounds * mean_service_seconds_, 100.0, 10000.0));
}

v1::SlotPoint Engine::NextPoint(uint32_t slot_id, WorkerSlot& at_worker) {
  v1::SlotPoint point;
  point.set_slot(slot_id);
  point.set_slot_epoch(at_worker.epoch);
  point.set_command_number(++at_worker.command_number);
  point.set_length(at_worker.cached_len);
  point.set_prefix_hash(slots_[slot_id].sequence->prefix_hash(at_worker.cached_len));
  return point;
}

std::vector<uint32_t> Engine::SlotsByLack(Worker worker) const {
  const auto lack = [&](uint32_t id) {
    const Slot& slot = slots_[id];
    return slot.sequence->committed_len() -
           (worker == Worker::kDrafter ? slot.drafter : slot.verifier).cached_len;
  };
  std::vector<uint32_t> ids;
  for (uint32_t id = 0; id < slots_.size(); ++id) {
    if (slots_[id].sequence != nullptr) ids.push_back(id);
  }
  std::stable_sort(ids.begin(), ids.end(),
                   [&](uint32_t a, uint32_t b) { return lack(a) < lack(b); });
  return ids;
}

void Engine::SendCloses(Worker worker) {
  std::vector<v1::SlotClose>& closes =
      worker == Worker::kDrafter ? drafter_closes_ : verifier_closes_;
  if (closes.empty() || !workers_.ready(worker)) return;
  v1::UpdateSlots update;
  update.mutable_closes()->Assign(closes.begin(), closes.end());
  closes.clear();
  if (worker == Worker::kDrafter) {
    SendToDrafter send{drafter_session_, {}};
    send.command.set_id(workers_.NextCommandId());
    *send.command.mutable_update_slots() = std::move(update);
    commands_.push_back(std::move(send));
  } else {
    SendToVerifier send{verifier_session_, {}};
    send.command.set_id(workers_.NextCommandId());
    *send.command.mutable_update_slots() = std::move(update);
    commands_.push_back(std::move(send));
  }
}

void Engine::Resynchronise(const v1::SlotState& state, const Sequence& sequence,
                           WorkerSlot* at_worker) {
  at_worker->command_number = std::max(at_worker->command_number, state.command_number());
  if (state.slot_epoch() == at_worker->epoch && state.cached_len() <= sequence.committed_len() &&
      state.prefix_hash() == sequence.prefix_hash(state.cached_len())) {
    // At least one token must be left to send: its row is where the next token comes from.
    at_worker->cached_len = std::min(state.cached_len(), sequence.committed_len() - 1);
    return;
  }
  at_worker->cached_len = 0;
  if (state.slot_epoch() == at_worker->epoch) return;
  at_worker->open = false;
  if (state.slot_epoch() > at_worker->epoch) at_worker->epoch = state.slot_epoch() + 1;
}

// ---------------------------------------------------------------- propose

uint32_t Engine::DraftLength(const Slot& slot, uint32_t slot_id) const {
  const Sequence& sequence = *slot.sequence;
  const v1::AttachReply& drafter = *workers_.info(Worker::kDrafter);
  if (sequence.drafting_off || slot_id >= drafter.max_slots()) return 0;
  DraftLengthLimits limits;
  limits.wanted = sequence.request.draft_length.value_or(options_.draft_length);
  limits.committed_len = sequence.committed_len();
  limits.remaining_tokens =
      static_cast<uint32_t>(sequence.request.max_tokens - sequence.output.num_tokens());
  limits.target_context = workers_.info(Worker::kVerifier)->max_context_tokens();
  limits.draft_context = drafter.max_context_tokens();
  return LimitDraftLength(limits);
}

bool Engine::SendPropose(double now) {
  if (!workers_.ready(Worker::kDrafter)) return false;
  ProposeBatch batch{0, drafter_session_, now, {}, verifier_session_};
  SendToDrafter send{drafter_session_, {}};
  v1::Propose* propose = send.command.mutable_propose();
  uint32_t rows_left = options_.step_rows;
  for (uint32_t id : SlotsByLack(Worker::kDrafter)) {
    Slot& slot = slots_[id];
    const Sequence& sequence = *slot.sequence;
    // While the verifier lacks more than the pending token there is nothing to draft after.
    if (sequence.committed_len() - slot.verifier.cached_len != 1) continue;
    uint32_t draft_length = DraftLength(slot, id);
    if (draft_length == 0) continue;
    const bool needs_ring = sequence.request.needs_draft_log_probs();
    if (needs_ring && workers_.ring().num_free() == 0) continue;

    uint32_t num_tokens = sequence.committed_len() - slot.drafter.cached_len;
    if (num_tokens + draft_length - 1 > rows_left) {
      // Catches up in pieces, and decodes plainly until it has.
      draft_length = 0;
      num_tokens = std::min(num_tokens - 1, rows_left);
    }
    if (num_tokens == 0) continue;
    rows_left -= num_tokens + (draft_length > 0 ? draft_length - 1 : 0);

    v1::ProposeItem* item = propose->add_items();
    *item->mutable_at() = NextPoint(id, slot.drafter);
    if (!std::exchange(slot.drafter.open, true)) *item->mutable_open() = sequence.request.open;
    const auto tokens = sequence.tokens().subspan(slot.drafter.cached_len, num_tokens);
    item->mutable_token_ids()->Assign(tokens.begin(), tokens.end());
    item->set_draft_length(draft_length);
    std::optional<v1::RingReference> ring;
    if (needs_ring && draft_length > 0) {
      ring = workers_.ring().Acquire();
      *item->mutable_ring() = *ring;
    }
    batch.items.push_back(
        {id, sequence.serial, slot.drafter.cached_len + num_tokens, draft_length, std::move(ring)});
  }
  if (batch.items.empty()) return false;
  if (!drafter_closes_.empty()) {
    propose->mutable_update_slots()->mutable_closes()->Assign(drafter_closes_.begin(),
                                                              drafter_closes_.end());
    drafter_closes_.clear();
  }
  batch.id = workers_.NextCommandId();
  send.command.set_id(batch.id);
  commands_.push_back(std::move(send));
  propose_ = std::move(batch);
  return true;
}

void Engine::OnPropose(v1::ProposeReply& reply, double now) {
  const ProposeBatch batch = *std::exchange(propose_, std::nullopt);
  const double round_trip = now - batch.sent_at;
  const double compute = ComputeSeconds(reply.compute_seconds(), round_trip);
  std::vector<Draft> drafts(slots_.size());
  std::string broken;
  if (reply.results_size() != static_cast<int>(batch.items.size())) {
    broken = absl::StrCat("answered ", batch.items.size(), " items with ", reply.results_size());
  }
  for (size_t i = 0; i < batch.items.size() && broken.empty(); ++i) {
    const ProposeBatch::Item& item = batch.items[i];
    Draft* draft = &drafts[item.slot];
    broken = TakeDraft(item, *reply.mutable_results(static_cast<int>(i)), draft);
    if (item.ring.has_value() && !draft->ring.has_value()) workers_.ring().Release(*item.ring);
    if (Sequence* sequence = Find(item.slot, item.serial)) {
      sequence->account.Drafted(round_trip, compute);
    }
  }
  if (!broken.empty()) {
    workers_.Drop(Worker::kDrafter, absl::StrCat("broke the protocol: ", broken), now);
  }
  if (!broken.empty() || batch.verifier_session != verifier_session_) {
    // The rows of these blocks are gone, or not to be trusted. Entries of a ring that is gone need
    // no release.
    for (Draft& draft : drafts) draft = Draft();
  }
  SendVerify(std::move(drafts), now);
}

std::string Engine::TakeDraft(const ProposeBatch::Item& item, v1::ProposeResult& result,
                              Draft* draft) {
  const v1::SlotState& state = result.state();
  if (state.slot() != item.slot) {
    return absl::StrCat("answered slot ", item.slot, " with slot ", state.slot());
  }
  Sequence* sequence = Find(item.slot, item.serial);
  if (sequence == nullptr) return "";  // cancelled meanwhile
  WorkerSlot& at_drafter = slots_[item.slot].drafter;

  switch (state.code()) {
    case v1::WORKER_CODE_OK:
      break;
    case v1::WORKER_CODE_ABORTED:
      if (++sequence->draft_resyncs > kMaxResyncs) sequence->drafting_off = true;
      Resynchronise(state, *sequence, &at_drafter);
      return "";
    case v1::WORKER_CODE_NON_FINITE_LOGITS:  // no drafts this round
      Resynchronise(state, *sequence, &at_drafter);
      return "";
    default:
      sequence->drafting_off = true;
      Log(LogLine::Level::kWarning, absl::StrCat("draft: request ", sequence->request.request_id,
                                                 " is decoded without drafts: ", state.message()));
      return "";
  }

  const int num_drafted = result.draft_token_ids_size();
  if (num_drafted > static_cast<int>(item.draft_length) || !IsChain(result)) {
    return absl::StrCat("drafted ", num_drafted, " tokens where a chain of at most ",
                        item.draft_length, " was asked for");
  }
  const auto vocabulary_size =
      static_cast<int64_t>(workers_.info(Worker::kVerifier)->vocabulary_size());
  for (int32_t id : result.draft_token_ids()) {
    if (id < 0 || id >= vocabulary_size) {
      return absl::StrCat("drafted token ", id, " of a vocabulary of ", vocabulary_size);
    }
  }
  if (state.cached_len() < item.end || state.cached_len() > item.end + item.draft_length) {
    return absl::StrCat("holds ", state.cached_len(), " rows where ", item.end, " were sent");
  }
  sequence->draft_resyncs = 0;
  at_drafter.cached_len = item.end;
  if (num_drafted == 0) return "";
  draft->token_ids.assign(result.draft_token_ids().begin(), result.draft_token_ids().end());
  draft->ring = item.ring;
  draft->rows = state.cached_len() - item.end;
  draft->session = drafter_session_;
  return "";
}

void Engine::ForwardLogProbs(v1::DraftReply& reply, double now) {
  v1::LogProbChunk& chunk = *reply.mutable_log_prob_chunk();
  const auto item = std::find_if(
      propose_->items.begin(), propose_->items.end(), [&](const ProposeBatch::Item& candidate) {
        return candidate.ring.has_value() && candidate.ring->entry() == chunk.ring().entry() &&
               candidate.ring->sequence() == chunk.ring().sequence() &&
               candidate.ring->ring_epoch() == chunk.ring().ring_epoch();
      });
  if (item == propose_->items.end() || chunk.rows() > item->draft_length) {
    workers_.Drop(Worker::kDrafter, "broke the protocol: sent log-prob rows nobody asked for", now);
    return;
  }
  if (propose_->verifier_session != verifier_session_ ||
      Find(item->slot, item->serial) == nullptr) {
    return;
  }
  SendToVerifier send{verifier_session_, {}};
  send.command.set_id(workers_.NextCommandId());
  send.command.mutable_log_prob_chunk()->Swap(&chunk);
  commands_.push_back(std::move(send));
}

// ---------------------------------------------------------------- verify

void Engine::SendVerify(std::vector<Draft> drafts, double now) {
  if (!verifier_up_) return;
  drafts.resize(slots_.size());
  VerifyBatch batch{0, verifier_session_, now, {}};
  SendToVerifier send{verifier_session_, {}};
  v1::Verify* verify = send.command.mutable_verify();
  // Every slot that decodes is in the batch; prompts share the rest, and never less than a quarter.
  uint32_t decode_rows = 0;
  uint32_t prompt_rows = 0;
  for (uint32_t id : SlotsByLack(Worker::kVerifier)) {
    Slot& slot = slots_[id];
    const Sequence& sequence = *slot.sequence;
    uint32_t num_tokens = sequence.committed_len() - slot.verifier.cached_len;
    if (num_tokens == 1) {
      decode_rows += 1 + static_cast<uint32_t>(drafts[id].token_ids.size());
    } else {
      const uint32_t left = options_.step_rows > decode_rows ? options_.step_rows - decode_rows : 0;
      const uint32_t share = std::max(left, options_.step_rows / 4);
      num_tokens = std::min(num_tokens, share - prompt_rows);
      prompt_rows += num_tokens;
    }
    if (num_tokens == 0) continue;

    VerifyBatch::Item pending;
    pending.slot = id;
    pending.serial = sequence.serial;
    pending.end = slot.verifier.cached_len + num_tokens;
    pending.sample = pending.end == sequence.committed_len();
    pending.draft = std::move(drafts[id]);

    v1::VerifyItem* item = verify->add_items();
    *item->mutable_at() = NextPoint(id, slot.verifier);
    if (!std::exchange(slot.verifier.open, true)) *item->mutable_open() = sequence.request.open;
    const auto tokens = sequence.tokens().subspan(slot.verifier.cached_len, num_tokens);
    item->mutable_token_ids()->Assign(tokens.begin(), tokens.end());
    item->mutable_draft_token_ids()->Assign(pending.draft.token_ids.begin(),
                                            pending.draft.token_ids.end());
    if (pending.draft.ring.has_value()) *item->mutable_ring() = *pending.draft.ring;
    item->set_sample(pending.sample);
    batch.items.push_back(std::move(pending));
  }
  if (batch.items.empty()) return;
  if (!verifier_closes_.empty()) {
    verify->mutable_update_slots()->mutable_closes()->Assign(verifier_closes_.begin(),
                                                             verifier_closes_.end());
    verifier_closes_.clear();
  }
  batch.id = workers_.NextCommandId();
  send.command.set_id(batch.id);
  commands_.push_back(std::move(send));
  verify_ = std::move(batch);
}

void Engine::OnVerify(v1::VerifyReply& reply, double now) {
  const VerifyBatch batch = *std::exchange(verify_, std::nullopt);
  const double round_trip = now - batch.sent_at;
  const double compute = ComputeSeconds(reply.compute_seconds(), round_trip);
  for (const VerifyBatch::Item& item : batch.items) {
    if (item.draft.ring.has_value()) workers_.ring().Release(*item.draft.ring);
  }
  std::string broken;
  if (reply.results_size() != static_cast<int>(batch.items.size())) {
    broken = absl::StrCat("answered ", batch.items.size(), " items with ", reply.results_size());
  }
  for (size_t i = 0; i < batch.items.size() && broken.empty(); ++i) {
    const VerifyBatch::Item& item = batch.items[i];
    if (Sequence* sequence = Find(item.slot, item.serial)) {
      sequence->account.Verified(round_trip, compute);
      broken = TakeVerdict(item, *reply.mutable_results(static_cast<int>(i)), now);
    }
  }
  if (!broken.empty()) {
    workers_.Drop(Worker::kVerifier, absl::StrCat("broke the protocol: ", broken), now);
  }
}

std::string Engine::TakeVerdict(const VerifyBatch::Item& item, v1::VerifyResult& result,
                                double now) {
  const v1::SlotState& state = result.state();
  if (state.slot() != item.slot) {
    return absl::StrCat("answered slot ", item.slot, " with slot ", state.slot());
  }
  Sequence& sequence = *slots_[item.slot].sequence;
  WorkerSlot& at_verifier = slots_[item.slot].verifier;

  switch (state.code()) {
    case v1::WORKER_CODE_OK:
      break;
    case v1::WORKER_CODE_ABORTED:
      if (++sequence.resyncs > kMaxResyncs) {
        FinishSlot(item.slot, Internal(absl::StrCat("router and verifier cannot agree on this "
                                                    "request's tokens: ",
                                                    state.message())));
      } else {
        Resynchronise(state, sequence, &at_verifier);
      }
      return "";
    case v1::WORKER_CODE_NON_FINITE_LOGITS:
      FinishSlot(item.slot, Internal(absl::StrCat("the target produced non-finite logits after ",
                                                  sequence.committed_len(), " tokens")));
      return "";
    case v1::WORKER_CODE_RESOURCE_EXHAUSTED:
      FinishSlot(item.slot,
                 ResourceExhausted(absl::StrCat("the verifier has no room: ", state.message())));
      return "";
    default:
      FinishSlot(item.slot, Internal(absl::StrCat("verifier: ", state.message())));
      return "";
  }

  const uint32_t num_accepted = result.num_accepted();
  if (num_accepted > item.draft.token_ids.size() ||
      (num_accepted > 0 && !result.ring_error().empty())) {
    return absl::StrCat("accepted ", num_accepted, " of ", item.draft.token_ids.size(), " drafts");
  }
  if (state.cached_len() != item.end + num_accepted) {
    return absl::StrCat("holds ", state.cached_len(), " rows where ", item.end + num_accepted,
                        " were expected");
  }
  if (!item.sample) {
    at_verifier.cached_len = item.end;
    sequence.resyncs = 0;
    return "";
  }
  const int64_t vocabulary_size = workers_.info(Worker::kVerifier)->vocabulary_size();
  if (result.next_token_id() < 0 || result.next_token_id() >= vocabulary_size) {
    return absl::StrCat("sampled token ", result.next_token_id(), " of a vocabulary of ",
                        vocabulary_size);
  }
  if (sequence.request.wants_logprobs &&
      result.logprobs_size() != static_cast<int>(num_accepted) + 1) {
    return absl::StrCat("gave ", result.logprobs_size(), " logprobs for ", num_accepted + 1,
                        " tokens");
  }
  at_verifier.cached_len = item.end + num_accepted;
  sequence.resyncs = 0;
  sequence.lost_rounds = 0;
  Commit(item.slot, item, result, now);
  return "";
}

void Engine::Commit(uint32_t slot_id, const VerifyBatch::Item& item, v1::VerifyResult& result,
                    double now) {
  Slot& slot = slots_[slot_id];
  Sequence& sequence = *slot.sequence;
  const bool judged = !item.draft.token_ids.empty() && result.ring_error().empty();
  const int num_drafted = judged ? static_cast<int>(item.draft.token_ids.size()) : 0;
  const int num_accepted = static_cast<int>(result.num_accepted());
  if (!result.ring_error().empty()) {
    ++num_ring_errors_;
    Log(LogLine::Level::kWarning, absl::StrCat("log-prob ring: ", result.ring_error()));
  }

  int num_emitted = 0;
  bool finished = false;
  for (int i = 0; i <= num_accepted && !finished; ++i) {
    const bool accepted = i < num_accepted;
    const int32_t token_id = accepted ? item.draft.token_ids[i] : result.next_token_id();
    const v1::TokenSource source = accepted                     ? v1::TOKEN_SOURCE_ACCEPTED
                                   : num_drafted == 0           ? v1::TOKEN_SOURCE_PLAIN
                                   : num_accepted < num_drafted ? v1::TOKEN_SOURCE_RECOVERED
                                                                : v1::TOKEN_SOURCE_BONUS;
    sequence.Append(token_id);
    finished = sequence.output.Push(
        token_id, source, i < result.logprobs_size() ? result.mutable_logprobs(i) : nullptr);
    ++num_emitted;
  }
  sequence.account.Emitted(now);
  if (num_drafted == 0) {
    sequence.account.AddPlainRound();
  } else {
    const bool rejection_emitted = num_accepted < num_drafted && num_emitted > num_accepted;
    const int emitted_accepted = std::min(num_accepted, num_emitted);
    sequence.account.AddDraftedRound(num_drafted, emitted_accepted,
                                     emitted_accepted + (rejection_emitted ? 1 : 0),
                                     workers_.info(Worker::kDrafter)->model());
  }
  // The drafter's rows of accepted tokens stay good; the others are rolled back by its next
  // command.
  if (item.draft.session != 0 && item.draft.session == drafter_session_ &&
      slot.drafter.cached_len == item.end) {
    slot.drafter.cached_len += std::min(item.draft.rows, result.num_accepted());
  }

  v1::GenerateResponse response = sequence.output.Take();
  if (!finished) {
    commands_.push_back(WriteResponse{sequence.call, std::move(response)});
    return;
  }
  v1::Completion* completion = response.mutable_completion();
  *completion = sequence.output.completion();
  sequence.account.Fill(completion);
  completion->mutable_speculation()->set_reproducible(sequence.request.open.reproducible());
  completion->mutable_usage()->set_prompt_tokens(
      static_cast<int>(sequence.request.prompt_token_ids.size()));
  completion->mutable_usage()->set_completion_tokens(sequence.output.num_tokens());
  completion->set_seed(sequence.request.open.sampling().seed());
  completion->set_lossless(sequence.request.open.lenience() == 1);
  commands_.push_back(WriteResponse{sequence.call, std::move(response)});
  mean_service_seconds_ += 0.1 * (now - sequence.account.admitted_at() - mean_service_seconds_);
  FinishSlot(slot_id, absl::OkStatus());
}

}  // namespace tandem
