// The rounds of the engine: what is proposed, verified and committed.
#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "services/router/drafting/draft_length.h"
#include "services/router/engine/engine.h"
#include "services/router/engine/sessions/worker_text.h"

namespace tandem {
namespace {

// Largest number of consecutive resynchronizations of a slot without progress. One more fails the
// request (verifier) or stops its drafting (drafter).
constexpr int kMaxResyncs = 3;
// Smallest prompt chunk while other slots decode. A smaller chunk costs more in extra passes than
// it saves in waiting time.
constexpr uint32_t kMinChunkRows = 32;
// Prompt chunk while the cost of a row is not known yet.
constexpr uint32_t kFirstChunkRows = 64;
// A slot that was not drafted for in this number of rounds loses its rows at the drafter when
// another slot needs pages.
constexpr uint32_t kIdleDraftRounds = 64;
// Before a sequence that found no page, or no slot, tries again.
constexpr double kNoPageSeconds = 0.05;
// Ends what a client is told of a verifier's refusal.
constexpr char kSeeLog[] = " (the router's log says why)";

// Positions that so many rows from `begin` on attend to, each counted for every row that does.
double Attended(uint32_t begin, uint32_t rows) { return rows * (begin + 0.5 * (rows + 1)); }

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

bool Engine::IsWaiting(const Slot& slot) const { return slot.sequence->is_replay() && !idle(); }

uint32_t Engine::RowsWithinStep(double seconds_per_row) const {
  if (seconds_per_row <= 0) return kFirstChunkRows;
  const double rows = options_.step_seconds / seconds_per_row;
  return static_cast<uint32_t>(std::clamp(rows, double{kMinChunkRows}, 1e6));
}

void Engine::ReleaseDraft(Draft* draft) {
  if (draft->ring.has_value()) workers_.ring().Release(*draft->ring);
  *draft = Draft();
}

// ---------------------------------------------------------------- propose

uint32_t Engine::DraftLimit(const Slot& slot, uint32_t slot_id, Fallback* why) const {
  const Sequence& sequence = *slot.sequence;
  *why = Fallback::kGivenUp;
  if (sequence.drafting_off || sequence.is_replay() ||
      slot_id >= workers_.info(kDrafterPeer)->max_slots()) {
    return 0;
  }
  *why = Fallback::kNoRing;
  if (sequence.request.needs_draft_log_probs() && workers_.ring().num_free() == 0) return 0;
  *why = Fallback::kNoRoom;
  const auto context = [&](PeerId peer) {
    const uint32_t tokens = workers_.info(peer)->max_context_tokens();
    const PageBudget& budget = peers_[peer].pages();
    return budget.limited() ? static_cast<uint32_t>(std::min<uint64_t>(tokens, budget.capacity()))
                            : tokens;
  };
  DraftLengthLimits limits;
  limits.wanted = options_.workers.max_draft_length;
  limits.committed_len = sequence.committed_len();
  limits.remaining_tokens =
      static_cast<uint32_t>(sequence.request.max_tokens - sequence.output.num_tokens());
  limits.target_context = context(kVerifierPeer);
  limits.draft_context = context(kDrafterPeer);
  return LimitDraftLength(limits);
}

std::optional<uint32_t> Engine::FixedDraftLength(const Sequence& sequence) const {
  return sequence.request.draft_length.has_value() ? sequence.request.draft_length
                                                   : options_.draft_length;
}

bool Engine::SendPropose(uint32_t index, double now) {
  cohorts_[index].round = {};
  if (!workers_.ready(kDrafterPeer)) {
    for (Slot& slot : slots_) {
      if (slot.cohort == index) slot.fallback = Fallback::kNoDrafter;
    }
    controller_.ChooseNothing();
    return false;
  }
  DraftChoice choice = GatherCandidates(index);
  if (choice.candidates.empty()) return false;
  controller_.Choose(choice.candidates, choice.rest);
  const std::vector<ProposePlan> plans = PlanPropose(choice);
  if (plans.empty()) return false;
  BuildPropose(index, plans, now);
  return true;
}

Engine::DraftChoice Engine::GatherCandidates(uint32_t index) {
  DraftChoice choice;
  DraftBatch& rest = choice.rest;
  rest.cohort = index;
  for (uint32_t id = 0; id < slots_.size(); ++id) {
    Slot& slot = slots_[id];
    if (slot.sequence == nullptr || IsWaiting(slot)) continue;
    if (slot.cohort != index) {
      rest.overlapped = true;
      continue;
    }
    const Sequence& sequence = *slot.sequence;
    // While the verifier lacks more than the pending token there is nothing to draft after.
    const uint32_t lack = Lack(verifier(), id);
    const uint32_t limit = DraftLimit(slot, id, &slot.fallback);
    if (lack > 1) {
      const uint32_t rows = std::min(lack, options_.step_rows);
      rest.prompt_rows += rows;
      ++rest.prompt_slots;
      rest.prompt_attended += Attended(verifier().slot(id).cached_len, rows);
    } else if (limit == 0) {
      ++rest.plain_rows;
      rest.plain_attended += sequence.committed_len();
    } else {
      DraftCandidate candidate;
      candidate.acceptance = &sequence.acceptance;
      candidate.serial = sequence.serial;
      candidate.limit = limit;
      candidate.fixed = FixedDraftLength(sequence);
      candidate.context = sequence.committed_len();
      candidate.drafter_lack = Lack(drafter(), id);
      candidate.remaining_tokens =
          static_cast<uint32_t>(sequence.request.max_tokens - sequence.output.num_tokens());
      choice.candidates.push_back(candidate);
      choice.ids.push_back(id);
    }
  }
  return choice;
}

std::vector<Engine::ProposePlan> Engine::PlanPropose(const DraftChoice& choice) {
  const std::vector<uint32_t>& ids = choice.ids;
  const PageBudget& pages = drafter().pages();
  std::vector<ProposePlan> plans;
  uint32_t rows_left = options_.step_rows;
  // Slots that lack the least go first. A drafter that catches up with a prompt does so in pieces,
  // and the slot decodes plainly meanwhile.
  uint32_t catch_up_left =
      ids.size() > 1 ? RowsWithinStep(drafter().row_seconds().value()) : rows_left;
  size_t ring_entries_left = workers_.ring().num_free();
  int64_t pages_used = 0;  // less those that the rollbacks of the same command return
  for (uint32_t id : DueRollbacks(kDrafterPeer)) pages_used -= drafter().num_extra_pages(id);
  std::vector<size_t> by_lack(ids.size());
  std::iota(by_lack.begin(), by_lack.end(), size_t{0});
  std::stable_sort(by_lack.begin(), by_lack.end(), [&](size_t a, size_t b) {
    return choice.candidates[a].drafter_lack < choice.candidates[b].drafter_lack;
  });
  for (size_t i : by_lack) {
    const uint32_t id = ids[i];
    Slot& slot = slots_[id];
    uint32_t draft_length = std::min(choice.candidates[i].length, choice.candidates[i].limit);
    slot.fallback = Fallback::kNotWorthwhile;
    if (draft_length == 0) continue;
    const bool needs_ring = slot.sequence->request.needs_draft_log_probs();
    slot.fallback = Fallback::kNoRing;
    if (needs_ring && ring_entries_left == 0) continue;
    slot.fallback = Fallback::kCatchingUp;
    uint32_t num_tokens = choice.candidates[i].drafter_lack;
    if (num_tokens == 0) continue;  // a draft follows the pending token, which the drafter has
    const bool is_far_behind = num_tokens > kFirstChunkRows;
    const uint32_t most_rows = is_far_behind ? std::min(rows_left, catch_up_left) : rows_left;
    if (num_tokens + draft_length - 1 > most_rows) {
      draft_length = 0;
      num_tokens = std::min(num_tokens - 1, most_rows);
    }
    if (num_tokens == 0) continue;
    const uint32_t rows = num_tokens + (draft_length > 0 ? draft_length - 1 : 0);
    const uint32_t begin = drafter().slot(id).cached_len;
    const int64_t need = pages.PagesOf(begin + rows) - pages.PagesOf(begin);
    if (pages.limited() && need > pages.num_free() - pages_used) {
      CloseIdleDraft(choice);  // for the next round
      slot.fallback = Fallback::kNoPages;
      continue;
    }
    pages_used += need;
    rows_left -= rows;
    if (is_far_behind) catch_up_left -= rows;
    if (needs_ring && draft_length > 0) --ring_entries_left;
    plans.push_back({id, num_tokens, draft_length});
  }
  return plans;
}

void Engine::BuildPropose(uint32_t index, const std::vector<ProposePlan>& plans, double now) {
  ProposeBatch batch{
      index, workers_.NextCommandId(), drafter().session(), verifier().session(), now, now, {}};
  SendToDrafter send{drafter().session(), {}};
  send.command.set_id(batch.id);
  v1::Propose* propose = send.command.mutable_propose();
  // The numbers of a slot's commands grow in the order in which the worker carries them out:
  // rollbacks come before items.
  if (std::optional<v1::UpdateSlots> updates = TakeUpdates(kDrafterPeer, /*rides=*/true)) {
    *propose->mutable_update_slots() = *std::move(updates);
  }
  for (const ProposePlan& plan : plans) {
    Slot& slot = slots_[plan.slot];
    const Sequence& sequence = *slot.sequence;
    const uint32_t begin = drafter().slot(plan.slot).cached_len;
    batch.rows += plan.num_tokens;

    v1::ProposeItem* item = propose->add_items();
    *item->mutable_at() = drafter().NextPoint(plan.slot, sequence);
    if (drafter().Open(plan.slot)) *item->mutable_open() = sequence.request.open;
    const auto tokens = sequence.tokens().subspan(begin, plan.num_tokens);
    item->mutable_token_ids()->Assign(tokens.begin(), tokens.end());
    item->set_draft_length(plan.draft_length);
    std::optional<v1::RingReference> ring;
    if (plan.draft_length > 0) {
      slot.fallback = Fallback::kDraftFailed;  // unless a draft comes
      if (sequence.request.needs_draft_log_probs()) {
        ring = workers_.ring().Acquire();
        *item->mutable_ring() = *ring;
      }
    }
    batch.items.push_back(
        {plan.slot, sequence.serial, begin + plan.num_tokens, plan.draft_length, std::move(ring)});
  }
  commands_.push_back(std::move(send));
  propose_ = std::move(batch);
}

void Engine::CloseIdleDraft(const DraftChoice& choice) {
  std::vector<bool> wants_draft(slots_.size());
  for (size_t i = 0; i < choice.ids.size(); ++i) {
    wants_draft[choice.ids[i]] = choice.candidates[i].length > 0;
  }
  for (uint32_t id = 0; id < slots_.size(); ++id) {
    const Slot& slot = slots_[id];
    if (wants_draft[id] || slot.sequence == nullptr || !drafter().slot(id).open ||
        slot.sequence->acceptance.rounds_without_draft() < kIdleDraftRounds) {
      continue;
    }
    drafter().Close(id);
    drafter().BeginLife(id);
    return;
  }
}

void Engine::OnPropose(v1::ProposeReply& reply, double now) {
  const ProposeBatch batch = *std::exchange(propose_, std::nullopt);
  Cohort& cohort = cohorts_[batch.cohort];
  cohort.stage = Cohort::Stage::kProposed;
  cohort.drafts.assign(slots_.size(), Draft());
  drafter().pages().Reported(reply.num_free_pages());
  const double compute = reply.compute_seconds();
  const double round_trip = std::max(now - batch.sent_at, compute);
  cohort.round_begun_at = batch.begun_at;
  cohort.round = {.draft = compute,
                  .transfer = round_trip - compute,
                  .commit = now - batch.begun_at - round_trip};
  std::string broken = TakeRollbacks(kDrafterPeer, reply.update_slots());
  if (reply.results_size() != static_cast<int>(batch.items.size())) {
    broken = absl::StrCat("answered ", batch.items.size(), " items with ", reply.results_size());
  }
  std::vector<uint32_t> draft_lengths;
  for (size_t i = 0; i < batch.items.size() && broken.empty(); ++i) {
    const ProposeBatch::Item& item = batch.items[i];
    Draft* draft = &cohort.drafts[item.slot];
    broken = TakeDraft(item, *reply.mutable_results(static_cast<int>(i)), draft);
    if (item.ring.has_value() && !draft->ring.has_value()) workers_.ring().Release(*item.ring);
    draft_lengths.push_back(static_cast<uint32_t>(draft->token_ids.size()));
    if (Sequence* sequence = Find(item.slot, item.serial)) {
      sequence->account.Drafted(round_trip, compute);
    }
  }
  if (!broken.empty()) {
    workers_.Drop(kDrafterPeer, SessionChange::kProtocolError,
                  absl::StrCat("broke the protocol: ", broken), now);
  } else {
    ProposeCost cost;
    cost.draft_lengths = draft_lengths;
    cost.catch_up_rows = batch.rows;
    cost.compute_seconds = compute;
    cost.catch_up_seconds = reply.catch_up_seconds();
    cost.overhead_seconds = now - batch.begun_at - compute;
    controller_.ObservePropose(cost);
    if (batch.rows >= kMinChunkRows && cost.catch_up_seconds > 0) {
      drafter().row_seconds().Add(cost.catch_up_seconds / batch.rows);
    }
  }
  if (!broken.empty() || batch.verifier_session != verifier().session()) {
    // The rows of these blocks are gone, or not to be trusted. Entries of a ring that is gone need
    // no release.
    cohort.drafts.clear();
  }
}

std::string Engine::TakeDraft(const ProposeBatch::Item& item, v1::ProposeResult& result,
                              Draft* draft) {
  const v1::SlotState& state = result.state();
  if (state.slot() != item.slot) {
    return absl::StrCat("answered slot ", item.slot, " with slot ", state.slot());
  }
  Sequence* sequence = Find(item.slot, item.serial);
  if (sequence == nullptr) return "";  // cancelled or preempted meanwhile

  switch (state.code()) {
    case v1::WORKER_CODE_OK:
      break;
    case v1::WORKER_CODE_ABORTED:
      if (++sequence->draft_resyncs > kMaxResyncs) sequence->drafting_off = true;
      drafter().Resynchronize(state, *sequence);
      return "";
    case v1::WORKER_CODE_NON_FINITE_LOGITS:  // no drafts this round
      drafter().Resynchronize(state, *sequence);
      return "";
    case v1::WORKER_CODE_RESOURCE_EXHAUSTED:
      if (const PageBudget& pages = drafter().pages();
          pages.limited() &&
          pages.PagesOf(item.end + item.draft_length) <= int64_t{pages.num_pages()}) {
        drafter().Resynchronize(state, *sequence);  // later: others have the pages
        return "";
      }
      [[fallthrough]];
    default:
      sequence->drafting_off = true;
      LogSlot(LogLine::Level::kWarning, item.slot,
              absl::StrCat("draft: the request is decoded without drafts: ",
                           WorkerText(state.message())),
              "draft: a request is decoded without drafts; the log says why");
      return "";
  }

  const int num_drafted = result.draft_token_ids_size();
  if (num_drafted > static_cast<int>(item.draft_length) || !IsChain(result)) {
    return absl::StrCat("drafted ", num_drafted, " tokens where a chain of at most ",
                        item.draft_length, " was asked for");
  }
  const auto vocabulary_size =
      static_cast<int64_t>(workers_.info(kVerifierPeer)->vocabulary_size());
  for (int32_t id : result.draft_token_ids()) {
    if (id < 0 || id >= vocabulary_size) {
      return absl::StrCat("drafted token ", id, " of a vocabulary of ", vocabulary_size);
    }
  }
  if (state.cached_len() < item.end || state.cached_len() > item.end + item.draft_length) {
    return absl::StrCat("holds ", state.cached_len(), " rows where ", item.end, " were sent");
  }
  const uint32_t num_sent = item.end - drafter().slot(item.slot).cached_len;
  if (result.num_cached_tokens() > num_sent) {
    return absl::StrCat("took ", result.num_cached_tokens(), " rows from its prefix cache of ",
                        num_sent);
  }
  sequence->num_cached_draft_tokens += result.num_cached_tokens();
  counts_.cached_draft_tokens += result.num_cached_tokens();
  if (const uint32_t prompt_len = sequence->prompt_len();
      num_sent > 1 && item.end - num_sent < prompt_len && !sequence->is_replay()) {
    const uint32_t num_prompt = std::min(num_sent, prompt_len - (item.end - num_sent));
    counts_.prefix_lookups[Worker::kDrafter] += num_prompt;
    counts_.prefix_hits[Worker::kDrafter] += std::min(num_prompt, result.num_cached_tokens());
  }
  sequence->draft_resyncs = 0;
  sequence->lost_drafts = 0;
  drafter().Hold(item.slot, item.end, state.cached_len());
  if (num_drafted == 0) return "";
  draft->serial = item.serial;
  draft->token_ids.assign(result.draft_token_ids().begin(), result.draft_token_ids().end());
  draft->ring = item.ring;
  draft->session = drafter().session();
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
    workers_.Drop(kDrafterPeer, SessionChange::kProtocolError,
                  "broke the protocol: sent log-prob rows nobody asked for", now);
    return;
  }
  if (propose_->verifier_session != verifier().session() ||
      Find(item->slot, item->serial) == nullptr) {
    return;
  }
  SendToVerifier send{verifier().session(), {}};
  send.command.set_id(workers_.NextCommandId());
  send.command.mutable_log_prob_chunk()->Swap(&chunk);
  commands_.push_back(std::move(send));
}

// ---------------------------------------------------------------- verify

std::vector<Engine::VerifyPlan> Engine::PlanVerify(uint32_t index) const {
  const Cohort& cohort = cohorts_[index];
  std::vector<uint32_t> ids;
  for (uint32_t id = 0; id < slots_.size(); ++id) {
    const Slot& slot = slots_[id];
    if (slot.sequence != nullptr && slot.cohort == index && !IsWaiting(slot)) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end(), [&](uint32_t a, uint32_t b) {
    return slots_[a].sequence->order < slots_[b].sequence->order;
  });

  std::vector<VerifyPlan> plans;
  bool has_suspect = false;
  uint32_t decode_rows = 0;
  uint32_t prompts_left = 0;
  for (uint32_t id : ids) {
    const Slot& slot = slots_[id];
    const Sequence& sequence = *slot.sequence;
    // A verifier died with it. Should another die it is known by whom: one suspect in a batch.
    if (sequence.lost_rounds > 0 && std::exchange(has_suspect, true)) continue;
    const uint32_t lack = Lack(verifier(), id);
    VerifyPlan plan{id, lack, 0};
    if (lack > 1) {
      ++prompts_left;
    } else {
      if (id < cohort.drafts.size() && cohort.drafts[id].serial == sequence.serial) {
        plan.num_drafted = static_cast<uint32_t>(cohort.drafts[id].token_ids.size());
      }
      decode_rows += 1 + plan.num_drafted;
    }
    plans.push_back(plan);
  }

  // Every slot that decodes is in the batch; prompts share the rest, and never less than a quarter,
  // but no more than those that decode, in whichever cohort, can wait for.
  uint32_t left = options_.step_rows > decode_rows ? options_.step_rows - decode_rows : 0;
  left = std::max(left, options_.step_rows / 4);
  bool anybody_decodes = false;
  for (uint32_t id = 0; id < slots_.size() && !anybody_decodes; ++id) {
    const Slot& slot = slots_[id];
    anybody_decodes = slot.sequence != nullptr && !IsWaiting(slot) && Lack(verifier(), id) == 1;
  }
  if (anybody_decodes) left = std::min(left, RowsWithinStep(verifier().row_seconds().value()));
  for (VerifyPlan& plan : plans) {
    if (plan.num_tokens == 1) continue;
    const uint32_t lack = plan.num_tokens;
    plan.num_tokens = std::min({lack, std::max(left / prompts_left, kMinChunkRows), left});
    --prompts_left;
    left -= plan.num_tokens;
    if (plan.num_tokens == lack || !verifier().pages().limited()) continue;
    // Whole pages, so that the prefix cache is asked for each.
    const uint32_t begin = verifier().slot(plan.slot).cached_len;
    const uint32_t page = verifier().pages().page_tokens();
    const uint32_t end = (begin + plan.num_tokens) / page * page;
    if (end > begin) plan.num_tokens = end - begin;
  }
  std::erase_if(plans, [](const VerifyPlan& plan) { return plan.num_tokens == 0; });
  return plans;
}

void Engine::ReservePages(std::vector<VerifyPlan>* plans) {
  const PageBudget& pages = verifier().pages();
  if (!pages.limited()) return;
  std::vector<VerifyPlan> kept;
  int64_t used = 0;
  for (VerifyPlan plan : *plans) {
    const Slot& slot = slots_[plan.slot];
    if (slot.sequence == nullptr) continue;  // preempted for an older one
    const uint32_t held = verifier().slot(plan.slot).cached_len;
    const auto need = [&] {
      return pages.PagesOf(held + plan.num_tokens + plan.num_drafted) - pages.PagesOf(held);
    };
    const auto lacks_pages = [&] { return need() > pages.num_free() - used; };
    while (lacks_pages()) {
      if (std::exchange(plan.num_drafted, 0) > 0) {
        slots_[plan.slot].fallback = Fallback::kNoPages;
        continue;
      }
      const std::optional<uint32_t> youngest = YoungestAfter(*slot.sequence);
      if (!youngest.has_value()) break;
      Preempt(*youngest);
    }
    // The oldest is sent in any case: the worker knows better what is free.
    if (lacks_pages() && !kept.empty()) continue;
    used += need();
    kept.push_back(plan);
  }
  *plans = std::move(kept);
}

std::optional<uint32_t> Engine::YoungestAfter(const Sequence& sequence) const {
  std::optional<uint32_t> youngest;
  for (uint32_t id = 0; id < slots_.size(); ++id) {
    const Sequence* other = slots_[id].sequence.get();
    if (other == nullptr || other->order <= sequence.order || verifier().slot(id).cached_len == 0) {
      continue;
    }
    if (!youngest.has_value() || other->order > slots_[*youngest].sequence->order) youngest = id;
  }
  return youngest;
}

void Engine::SendVerify(uint32_t index, double now) {
  Cohort& cohort = cohorts_[index];
  cohort.stage = Cohort::Stage::kIdle;
  std::vector<VerifyPlan> plans = PlanVerify(index);
  ReservePages(&plans);
  cohort.drafts.resize(slots_.size());
  VerifyBatch batch{index, 0, verifier().session(), now, now, {}};
  SendToVerifier send{verifier().session(), {}};
  v1::Verify* verify = send.command.mutable_verify();
  for (const VerifyPlan& plan : plans) {
    const Sequence& sequence = *slots_[plan.slot].sequence;
    VerifyBatch::Item pending;
    pending.slot = plan.slot;
    pending.serial = sequence.serial;
    pending.begin = verifier().slot(plan.slot).cached_len;
    pending.end = pending.begin + plan.num_tokens;
    pending.sample = pending.end == sequence.committed_len();
    if (plan.num_drafted > 0) pending.draft = std::exchange(cohort.drafts[plan.slot], Draft());
    batch.rows += plan.num_tokens + plan.num_drafted;
    batch.attended += Attended(pending.begin, plan.num_tokens + plan.num_drafted);
    if (plan.num_tokens > 1) batch.prompt_rows += plan.num_tokens;

    v1::VerifyItem* item = verify->add_items();
    *item->mutable_at() = verifier().NextPoint(plan.slot, sequence);
    if (verifier().Open(plan.slot)) *item->mutable_open() = sequence.request.open;
    const auto tokens = sequence.tokens().subspan(pending.begin, plan.num_tokens);
    item->mutable_token_ids()->Assign(tokens.begin(), tokens.end());
    item->mutable_draft_token_ids()->Assign(pending.draft.token_ids.begin(),
                                            pending.draft.token_ids.end());
    if (pending.draft.ring.has_value()) *item->mutable_ring() = *pending.draft.ring;
    item->set_sample(pending.sample);
    batch.items.push_back(std::move(pending));
  }
  // The remaining drafts belong to slots that were cancelled, preempted or short of pages
  // meanwhile. They are dropped unjudged, whichever tokens were drawn.
  for (Draft& draft : cohort.drafts) ReleaseDraft(&draft);
  cohort.drafts.clear();
  if (batch.items.empty()) return;
  if (std::optional<v1::UpdateSlots> updates = TakeUpdates(kVerifierPeer, /*rides=*/true)) {
    *verify->mutable_update_slots() = *std::move(updates);
  }
  batch.id = workers_.NextCommandId();
  send.command.set_id(batch.id);
  commands_.push_back(std::move(send));
  verify_ = std::move(batch);
  cohort.stage = Cohort::Stage::kVerifying;
  next_cohort_ = (index + 1) % static_cast<uint32_t>(cohorts_.size());
}

void Engine::OnVerify(v1::VerifyReply& reply, double now) {
  VerifyBatch batch = *std::exchange(verify_, std::nullopt);
  cohorts_[batch.cohort].stage = Cohort::Stage::kIdle;
  verifier().pages().Reported(reply.num_free_pages());
  const double compute = reply.compute_seconds();
  const double round_trip = std::max(now - batch.sent_at, compute);
  for (const VerifyBatch::Item& item : batch.items) {
    if (item.draft.ring.has_value()) workers_.ring().Release(*item.draft.ring);
  }
  std::string broken;
  if (reply.results_size() != static_cast<int>(batch.items.size())) {
    broken = absl::StrCat("answered ", batch.items.size(), " items with ", reply.results_size());
  }
  uint32_t num_cached = 0;
  double cached_attended = 0;
  bool decodes = false;  // for a client
  for (size_t i = 0; i < batch.items.size() && broken.empty(); ++i) {
    const VerifyBatch::Item& item = batch.items[i];
    v1::VerifyResult& result = *reply.mutable_results(static_cast<int>(i));
    const uint32_t cached = std::min(result.num_cached_tokens(), item.end - item.begin);
    num_cached += cached;
    cached_attended += Attended(item.begin, cached);
    if (Sequence* sequence = Find(item.slot, item.serial)) {
      sequence->account.Verified(round_trip, compute);
      decodes = decodes || (item.end - item.begin == 1 && !sequence->is_replay());
      broken = TakeVerdict(item, result, now);
    }
  }
  // After the verdicts: what the verifier refused to open is none of this router's.
  if (reply.has_num_open_slots()) OnOpenSlots(reply.num_open_slots());
  if (!broken.empty()) {
    // A round lost like one that the verifier died in, else it would be asked forever.
    verify_ = std::move(batch);
    workers_.Drop(kVerifierPeer, SessionChange::kProtocolError,
                  absl::StrCat("broke the protocol: ", broken), now);
    return;
  }
  if (decodes) {
    const Cohort& cohort = cohorts_[batch.cohort];
    RoundSeconds round = cohort.round;
    round.verify = compute;
    round.transfer += round_trip - compute;
    round.commit += now - batch.begun_at - round_trip;
    round.total = now - (round.draft > 0 ? cohort.round_begun_at : batch.begun_at);
    observer_->OnRound(round);
  }
  VerifyCost cost;
  cost.prompt_rows = batch.prompt_rows - std::min(batch.prompt_rows, num_cached);
  cost.rows = batch.rows - (batch.prompt_rows - cost.prompt_rows);
  cost.attended = batch.attended - cached_attended;
  cost.compute_seconds = compute;
  cost.overhead_seconds = now - batch.begun_at - compute;
  controller_.ObserveVerify(cost);
  if (batch.prompt_rows == 0) {
    decode_seconds_.Add(compute);
  } else if (cost.prompt_rows >= kMinChunkRows) {
    const double decoding =
        cost.rows > cost.prompt_rows ? std::min(decode_seconds_.value(), compute) : 0;
    verifier().row_seconds().Add((compute - decoding) / cost.prompt_rows);
  }
}

std::string Engine::TakeVerdict(const VerifyBatch::Item& item, v1::VerifyResult& result,
                                double now) {
  const v1::SlotState& state = result.state();
  if (state.slot() != item.slot) {
    return absl::StrCat("answered slot ", item.slot, " with slot ", state.slot());
  }
  Sequence& sequence = *slots_[item.slot].sequence;

  switch (state.code()) {
    case v1::WORKER_CODE_OK:
      break;
    case v1::WORKER_CODE_ABORTED:
      if (++sequence.resyncs > kMaxResyncs) {
        FailSlot(item.slot, state,
                 Internal(absl::StrCat("router and verifier cannot agree on this request's tokens",
                                       kSeeLog)));
      } else {
        verifier().Resynchronize(state, sequence);
      }
      return "";
    case v1::WORKER_CODE_NON_FINITE_LOGITS:
      FinishSlot(item.slot, Internal(absl::StrCat("the target produced non-finite logits after ",
                                                  sequence.committed_len(), " tokens")));
      return "";
    case v1::WORKER_CODE_RESOURCE_EXHAUSTED:
      OnNoPages(item, state, now);
      return "";
    default:
      FailSlot(item.slot, state,
               Internal(absl::StrCat("the verifier failed at this request", kSeeLog)));
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
  if (result.num_cached_tokens() > item.end - item.begin) {
    return absl::StrCat("took ", result.num_cached_tokens(), " rows from its prefix cache of ",
                        item.end - item.begin);
  }
  if (item.sample) {
    const int64_t vocabulary_size = workers_.info(kVerifierPeer)->vocabulary_size();
    if (result.next_token_id() < 0 || result.next_token_id() >= vocabulary_size) {
      return absl::StrCat("sampled token ", result.next_token_id(), " of a vocabulary of ",
                          vocabulary_size);
    }
    if (sequence.request.wants_logprobs &&
        result.logprobs_size() != static_cast<int>(num_accepted) + 1) {
      return absl::StrCat("gave ", result.logprobs_size(), " logprobs for ", num_accepted + 1,
                          " tokens");
    }
    // All samples of the reply count, whatever becomes of its tokens.
    if (absl::Status status = ledger_->audit.OnSamples(result.audit()); !status.ok()) {
      return std::string(status.message());
    }
    ReportAlarm();
  }
  if (item.begin >= sequence.furthest_len && !sequence.is_replay()) {
    sequence.num_cached_prompt_tokens += result.num_cached_tokens();
    counts_.cached_prompt_tokens += result.num_cached_tokens();
    if (item.end - item.begin > 1) {
      counts_.prefix_lookups[Worker::kVerifier] += item.end - item.begin;
      counts_.prefix_hits[Worker::kVerifier] += result.num_cached_tokens();
    }
  }
  if (state.cached_len() > sequence.furthest_len) {
    sequence.furthest_len = state.cached_len();
    sequence.lost_rounds = 0;
  }
  sequence.resyncs = 0;
  verifier().Hold(item.slot, state.cached_len(), state.cached_len());
  if (!item.sample) return "";
  if (sequence.is_replay()) {
    CompareReplay(item.slot, result);
  } else {
    Commit(item.slot, item, result, now);
  }
  return "";
}

void Engine::OnNoPages(const VerifyBatch::Item& item, const v1::SlotState& state, double now) {
  const uint32_t rows = item.end + static_cast<uint32_t>(item.draft.token_ids.size());
  if (const PageBudget& pages = verifier().pages();
      !pages.limited() || pages.PagesOf(rows) > int64_t{pages.num_pages()}) {
    FailSlot(item.slot, state,
             ResourceExhausted(absl::StrCat("the verifier has no room for this request, of ", rows,
                                            " tokens by now", kSeeLog)));
    return;
  }
  Slot& slot = slots_[item.slot];
  if (slot.sequence->is_replay()) {  // nobody waits for it
    FinishSlot(item.slot, absl::OkStatus());
    return;
  }
  verifier().Resynchronize(state, *slot.sequence);
  // Usually others of this router give way in the next round. If none holds a page, other routers
  // have them all: it gives its own back, so that no two wait for each other, and comes again. One
  // that holds nothing loses nothing by that, and can go to another pod meanwhile (Fleet).
  bool others_hold = false;
  for (uint32_t id = 0; id < slots_.size(); ++id) {
    others_hold = others_hold || (id != item.slot && slots_[id].sequence != nullptr &&
                                  verifier().slot(id).cached_len > 0);
  }
  if (others_hold && verifier().slot(item.slot).cached_len > 0) return;
  Preempt(item.slot);
  admit_at_ = now + kNoPageSeconds;
}

void Engine::FailSlot(uint32_t slot_id, const v1::SlotState& state, const absl::Status& told) {
  LogSlot(LogLine::Level::kWarning, slot_id,
          absl::StrCat("verifier: refused the request, which is given up: ",
                       v1::WorkerCode_Name(state.code()), ": ", WorkerText(state.message())),
          "verifier: refused a request, which is given up; the log says why");
  FinishSlot(slot_id, told);
}

void Engine::Commit(uint32_t slot_id, const VerifyBatch::Item& item, v1::VerifyResult& result,
                    double now) {
  Slot& slot = slots_[slot_id];
  Sequence& sequence = *slot.sequence;
  const bool judged = !item.draft.token_ids.empty() && result.ring_error().empty();
  const int num_drafted = judged ? static_cast<int>(item.draft.token_ids.size()) : 0;
  const int num_accepted = static_cast<int>(result.num_accepted());
  if (!result.ring_error().empty()) {
    ++counts_.ring_errors;
    LogSlot(LogLine::Level::kWarning, slot_id,
            absl::StrCat("log-prob ring: ", WorkerText(result.ring_error())),
            "log-prob ring: a draft could not be judged; the log says why");
  }
  if (item.end - item.begin == 1) {
    controller_.ObserveAcceptance(sequence.serial, sequence.mode(),
                                  static_cast<uint32_t>(num_drafted), result.num_accepted(),
                                  &sequence.acceptance);
  }

  const v1::TokenSource last_source = num_drafted == 0             ? v1::TOKEN_SOURCE_PLAIN
                                      : num_accepted < num_drafted ? v1::TOKEN_SOURCE_RECOVERED
                                                                   : v1::TOKEN_SOURCE_BONUS;
  if (const std::string& numerics_id = workers_.info(kVerifierPeer)->numerics_id();
      sequence.numerics_id != numerics_id) {
    sequence.numerics_id = numerics_id;
  }
  int num_emitted = 0;
  bool finished = false;
  for (int i = 0; i <= num_accepted && !finished; ++i) {
    const bool accepted = i < num_accepted;
    const int32_t token_id = accepted ? item.draft.token_ids[i] : result.next_token_id();
    sequence.Append(token_id);
    finished =
        sequence.output.Push(token_id, accepted ? v1::TOKEN_SOURCE_ACCEPTED : last_source,
                             i < result.logprobs_size() ? result.mutable_logprobs(i) : nullptr);
    ++num_emitted;
  }
  if (!sequence.account.decoding()) {
    observer_->OnFirstToken(now - sequence.account.arrived_at());
  }
  sequence.account.Emitted(now);
  CommittedRound round;
  round.emitted_last = num_emitted > num_accepted;
  round.last_source = last_source;
  if (num_drafted == 0) {
    sequence.account.AddPlainRound();
    if (item.end - item.begin == 1 && FixedDraftLength(sequence) != 0u) {
      ++counts_.fallbacks[result.ring_error().empty() ? slot.fallback : Fallback::kRingError];
    }
  } else {
    const bool rejection_emitted = num_accepted < num_drafted && round.emitted_last;
    round.num_drafted = num_drafted;
    round.num_accepted = std::min(num_accepted, num_emitted);
    round.num_tested = round.num_accepted + (rejection_emitted ? 1 : 0);
    round.drafter = &workers_.info(kDrafterPeer)->model();
    sequence.account.AddDraftedRound(num_drafted, round.num_accepted, round.num_tested,
                                     *round.drafter);
  }
  observer_->OnCommitted(round);
  // The verifier has rolled the rows of rejected tokens back. The drafter keeps those of accepted
  // tokens, and is told to roll the others back (DueRollbacks).
  if (num_accepted < num_drafted) {
    ++counts_.rollbacks[Worker::kVerifier];
    counts_.rolled_back_rows[Worker::kVerifier] +=
        static_cast<uint64_t>(num_drafted - num_accepted);
  }
  if (item.draft.session != 0 && item.draft.session == drafter().session() &&
      drafter().slot(slot_id).cached_len == item.end) {
    drafter().CommitRows(slot_id, result.num_accepted());
  }
  if (finished) {
    Complete(slot_id, now);
  } else {
    commands_.push_back(WriteResponse{sequence.call, sequence.output.Take()});
  }
}

void Engine::Complete(uint32_t slot_id, double now) {
  Sequence& sequence = *slots_[slot_id].sequence;
  v1::GenerateResponse response = sequence.output.Take();
  v1::Completion* completion = response.mutable_completion();
  *completion = sequence.output.completion();
  sequence.account.Fill(completion);
  completion->mutable_speculation()->set_reproducible(sequence.request.open.reproducible());
  v1::Usage* usage = completion->mutable_usage();
  usage->set_prompt_tokens(static_cast<int>(sequence.prompt_len()));
  usage->set_completion_tokens(sequence.output.num_tokens());
  usage->set_cached_prompt_tokens(static_cast<int>(sequence.num_cached_prompt_tokens));
  usage->set_cached_draft_tokens(static_cast<int>(sequence.num_cached_draft_tokens));
  completion->set_seed(sequence.request.open.sampling().seed());
  completion->set_lossless(sequence.request.open.lenience() == 1);
  observer_->OnCompleted(*completion);
  commands_.push_back(WriteResponse{sequence.call, std::move(response)});
  mean_service_seconds_ += 0.1 * (now - sequence.account.admitted_at() - mean_service_seconds_);
  QueueReplay(sequence);
  FinishSlot(slot_id, absl::OkStatus());
}

void Engine::CompareReplay(uint32_t slot_id, const v1::VerifyResult& result) {
  Sequence& replay = *slots_[slot_id].sequence;
  const auto position = static_cast<uint32_t>(replay.output_tokens().size());
  const int32_t expected = replay.expected[position];
  replay.Append(result.next_token_id());
  std::optional<ReplayMismatch> mismatch;
  if (result.next_token_id() != expected) {
    mismatch = ReplayMismatch{position, expected, result.next_token_id()};
  } else if (position + 1 < replay.expected.size()) {
    return;
  }
  ledger_->audit.OnReplay(replay.request.request_id, mismatch);
  ReportAlarm();
  FinishSlot(slot_id, absl::OkStatus());
}

}  // namespace tandem
