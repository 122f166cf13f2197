#include "services/router/engine/rounds/propose.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "proto/draft_tree.h"
#include "services/router/engine/rounds/lookup_round.h"
#include "services/router/engine/rounds/propose_plan.h"
#include "services/router/engine/rounds/rollback.h"
#include "services/router/engine/sessions/worker_text.h"

namespace tandem {
namespace {

DraftRoom ReadDraftRoom(const RoundState& state, uint32_t cohort) {
  DraftRoom room;
  room.num_slots = state.cohorts[cohort].num_decoding;
  room.target_context = state.workers.info(kVerifierPeer)->max_context_tokens();
  room.has_drafter = state.workers.ready(kDrafterPeer);
  if (!room.has_drafter) return room;
  room.drafter_slots = state.workers.info(kDrafterPeer)->max_slots();
  room.draft_context = state.workers.info(kDrafterPeer)->max_context_tokens();
  room.ring_entries = state.workers.ring().num_free();
  for (const uint32_t id : DueRollbacks(state, kDrafterPeer)) {
    room.returned_pages += state.slots.drafter().num_extra_pages(id);
  }
  return room;
}

// Counts the slots of a cohort that decode. Returns the positions that a row of each attends to,
// summed over the slots.
double CountDecoding(RoundState& state, uint32_t cohort) {
  uint32_t num_decoding = 0;
  double attended = 0;
  for (uint32_t id = 0; id < state.slots.size(); ++id) {
    const RouterSlot& slot = state.slots[id];
    if (slot.sequence == nullptr || slot.cohort != cohort || state.slots.IsWaiting(id) ||
        state.slots.Lack(kVerifierPeer, id) != 1) {
      continue;
    }
    ++num_decoding;
    attended += slot.sequence->committed_len();
  }
  state.cohorts[cohort].num_decoding = std::max(num_decoding, 1U);
  return attended;
}

// Reads what rows and passes cost, as far as it was measured. `attended`: of CountDecoding.
void ReadCosts(RoundState& state, uint32_t cohort, double attended, DraftRoom* room) {
  if (!state.controller.costs().verify_measured()) return;
  constexpr uint32_t kRows = 8;
  const RoundCosts costs = state.controller.costs().Expected();
  const uint32_t num_slots = state.cohorts[cohort].num_decoding;
  const double plain = costs.VerifySeconds(num_slots, attended);
  const double with_rows =
      costs.VerifySeconds(num_slots + kRows, attended + kRows * attended / num_slots);
  state.cohorts[cohort].plain_seconds = plain;
  // A row of one slot takes time from all slots of the batch.
  room->row_cost = state.verifier_times.row_cost = num_slots * (with_rows - plain) / kRows / plain;
  if (!state.controller.costs().measured()) return;  // a server without a draft model
  // The slots that draft share passes and messages.
  room->pass_cost = costs.pass.Seconds(1) / plain;
  room->propose_cost = costs.propose_overhead.Seconds(1) / plain;
}

// Fills one item of the command, and returns what is expected of its answer.
ProposeBatch::Item BuildItem(RoundState& state, const ProposePlan& plan, v1::ProposeItem* item) {
  RouterSlot& slot = state.slots[plan.slot];
  WorkerPeer& drafter = state.slots.drafter();
  const Sequence& sequence = *slot.sequence;
  ProposeBatch::Item sent;
  sent.slot = plan.slot;
  sent.serial = sequence.serial;
  sent.begin = drafter.slot(plan.slot).cached_len;
  sent.end = sent.begin + plan.num_tokens;
  sent.draft_length = plan.draft_length;
  sent.num_siblings = plan.num_siblings;
  *item->mutable_at() = drafter.NextPoint(plan.slot, sequence);
  if (drafter.Open(plan.slot)) *item->mutable_open() = sequence.request.OpenForDrafter();
  const auto tokens = sequence.tokens().subspan(sent.begin, plan.num_tokens);
  item->mutable_token_ids()->Assign(tokens.begin(), tokens.end());
  item->set_draft_length(plan.draft_length);
  item->mutable_num_siblings()->Assign(plan.num_siblings.begin(), plan.num_siblings.end());
  if (plan.draft_length > 0) {
    slot.fallback = Fallback::kDraftFailed;  // unless a draft comes
    if (sequence.request.needs_draft_log_probs()) {
      sent.ring = state.workers.ring().Acquire();
      *item->mutable_ring() = *sent.ring;
    }
  }
  return sent;
}

void BuildPropose(RoundState& state, uint32_t cohort, const std::vector<ProposePlan>& plans,
                  double now) {
  ProposeBatch batch;
  batch.cohort = cohort;
  batch.id = state.workers.NextCommandId();
  batch.session = state.slots.drafter().session();
  batch.verifier_session = state.slots.verifier().session();
  batch.begun_at = now;
  batch.sent_at = now;
  SendToDrafter send{batch.session, {}};
  send.command.set_id(batch.id);
  v1::Propose* propose = send.command.mutable_propose();
  // The numbers of a slot's commands grow in the order in which the worker carries them out:
  // rollbacks come before items.
  if (std::optional<v1::UpdateSlots> updates = TakeUpdates(state, kDrafterPeer, /*rides=*/true)) {
    *propose->mutable_update_slots() = *std::move(updates);
  }
  for (const ProposePlan& plan : plans) {
    batch.rows += plan.num_tokens;
    batch.items.push_back(BuildItem(state, plan, propose->add_items()));
  }
  state.out.commands.push_back(std::move(send));
  state.propose = std::move(batch);
}

// Also notes in the batch which items are at fault.
absl::Status CheckPropose(const RoundState& state, const v1::ProposeReply& reply,
                          ProposeBatch* batch) {
  TANDEM_RETURN_IF_ERROR(CheckRollbacks(state, reply.update_slots()));
  TANDEM_RETURN_IF_ERROR(CheckNumResults(batch->items.size(), reply.results_size()));
  const uint32_t vocabulary_size = state.workers.info(kVerifierPeer)->vocabulary_size();
  absl::Status first;
  for (size_t i = 0; i < batch->items.size(); ++i) {
    ProposeBatch::Item& item = batch->items[i];
    absl::Status status =
        CheckProposeResult(item, reply.results(static_cast<int>(i)), vocabulary_size);
    item.broke_rule = !status.ok();
    first.Update(std::move(status));
  }
  return first;
}

// The drafter refused an item. The slot is decoded plainly in this round.
void OnRefused(RoundState& state, const ProposeBatch::Item& item, const v1::SlotState& slot,
               Sequence* sequence) {
  WorkerPeer& drafter = state.slots.drafter();
  switch (slot.code()) {
    case v1::WORKER_CODE_ABORTED:
      sequence->faults.DrafterDisagreed();
      drafter.Resynchronize(slot, *sequence);
      return;
    case v1::WORKER_CODE_NON_FINITE_LOGITS:
      drafter.Resynchronize(slot, *sequence);
      return;
    case v1::WORKER_CODE_RESOURCE_EXHAUSTED:
      // Others have the pages: the slot tries again if it could fit alone.
      if (const PageBudget& pages = drafter.pages();
          pages.limited() &&
          pages.PagesOf(item.end + item.draft_length) <= int64_t{pages.num_pages()}) {
        drafter.Resynchronize(slot, *sequence);
        return;
      }
      break;
    default:
      break;
  }
  sequence->faults.StopDrafting();
  state.out.LogSlot(
      state.slots, LogLine::Level::kWarning, item.slot,
      absl::StrCat("draft: the request is decoded without drafts: ", WorkerText(slot.message())),
      "draft: a request is decoded without drafts; the log says why");
}

void CountCached(Counts* counts, const ProposeBatch::Item& item, uint32_t num_cached,
                 Sequence* sequence) {
  if (item.begin < sequence->furthest_draft_len) return;  // a drafter held its rows before
  sequence->num_cached.drafter += num_cached;
  counts->cached_draft_tokens += num_cached;
  const uint32_t prompt_len = sequence->prompt_len();
  const uint32_t num_sent = item.end - item.begin;
  if (num_sent <= 1 || item.begin >= prompt_len || sequence->is_replay()) return;
  const uint32_t num_prompt = std::min(num_sent, prompt_len - item.begin);
  counts->prefix_lookups[Worker::kDrafter] += num_prompt;
  counts->prefix_hits[Worker::kDrafter] += std::min(num_prompt, num_cached);
}

// Turns one checked result into a proposal. An empty one: there is no draft.
Proposal TakeProposal(RoundState& state, const ProposeBatch::Item& item,
                      const v1::ProposeResult& result) {
  Proposal proposal;
  Sequence* sequence = state.slots.Find(item.slot, item.serial);
  if (sequence == nullptr) return proposal;  // canceled or preempted meanwhile
  if (result.state().code() != v1::WORKER_CODE_OK) {
    OnRefused(state, item, result.state(), sequence);
    return proposal;
  }
  CountCached(&state.out.counts, item, result.num_cached_tokens(), sequence);
  sequence->furthest_draft_len = std::max(sequence->furthest_draft_len, item.end);
  sequence->faults.DrafterAgreed();
  state.slots.drafter().Hold(item.slot, item.end, result.state().cached_len());
  if (result.draft_token_ids().empty()) return proposal;
  proposal.serial = item.serial;
  proposal.token_ids.assign(result.draft_token_ids().begin(), result.draft_token_ids().end());
  proposal.parents.assign(result.parents().begin(), result.parents().end());
  proposal.ring = item.ring;
  proposal.session = state.slots.drafter().session();
  return proposal;
}

void ObservePropose(RoundState& state, const ProposeBatch& batch, const v1::ProposeReply& reply,
                    std::vector<uint32_t> draft_lengths, double now) {
  LearnProposeCost(state);  // the former cost, if no command was sent since that Propose
  ProposeCost cost;
  cost.catch_up_rows = batch.rows;
  cost.compute_seconds = reply.compute_seconds();
  cost.catch_up_seconds = reply.catch_up_seconds();
  cost.overhead_seconds = now - batch.begun_at - reply.compute_seconds();
  state.measured_propose = {std::move(draft_lengths), cost};
  if (batch.rows >= kMinChunkRows && cost.catch_up_seconds > 0) {
    state.slots.drafter().row_seconds().Add(cost.catch_up_seconds / batch.rows);
  }
}

// Makes proposals of the drafts that were found, for the slots that use them.
void TakeFound(RoundState& state, uint32_t cohort, DraftChoice* choice) {
  std::vector<Proposal>& proposals = state.cohorts[cohort].proposals;
  proposals.clear();
  proposals.resize(state.slots.size());
  // Each slot has one row more in the same batch.
  const auto num_slots = static_cast<uint32_t>(choice->candidates.size()) + choice->rest.plain_rows;
  uint32_t left = state.options.step_rows - std::min(state.options.step_rows, num_slots);
  for (size_t i = 0; i < choice->candidates.size(); ++i) {
    const DraftCandidate& candidate = choice->candidates[i];
    if (!candidate.has_draft) continue;
    RouterSlot& slot = state.slots[choice->ids[i]];
    slot.fallback = Fallback::kNotWorthwhile;
    const uint32_t length = std::min({candidate.length, candidate.limit, left});
    if (choice->is_trial[i]) slot.sequence->lookups->OnTrial(choice->found[i], length > 0);
    if (length == 0) continue;
    left -= length;
    choice->num_found += length;
    proposals[choice->ids[i]] = ProposeFound(*slot.sequence, std::move(choice->found[i]), length);
  }
}

}  // namespace

bool SendPropose(RoundState& state, uint32_t cohort, double now) {
  state.cohorts[cohort].round = {};
  const bool uses_lookups = FeedLookups(cohort, &state.slots);
  const double attended = uses_lookups ? CountDecoding(state, cohort) : 0;
  DraftRoom room = ReadDraftRoom(state, cohort);
  if (uses_lookups) ReadCosts(state, cohort, attended, &room);
  DraftChoice choice = GatherCandidates(state.options, room, cohort, &state.slots);
  if (choice.candidates.empty()) {
    if (!room.has_drafter && !uses_lookups) state.controller.ChooseNothing();
    return false;
  }
  state.controller.Choose(choice.candidates, choice.rest);
  TakeFound(state, cohort, &choice);
  const std::vector<ProposePlan> plans = PlanPropose(state.options, room, choice, &state.slots);
  if (plans.empty()) return false;
  BuildPropose(state, cohort, plans, now);
  return true;
}

void OnPropose(RoundState& state, const v1::ProposeReply& reply, double now) {
  if (absl::Status status = CheckPropose(state, reply, &*state.propose); !status.ok()) {
    // The batch is lost with the session, and with it the entries of the ring that the drafter may
    // still fill.
    return DropForBrokenRule(state, kDrafterPeer, status, now);
  }
  const ProposeBatch batch = *std::exchange(state.propose, std::nullopt);
  Cohort& cohort = state.cohorts[batch.cohort];
  cohort.stage = Cohort::Stage::kProposed;
  state.slots.drafter().pages().Reported(reply.num_free_pages());
  const double compute = reply.compute_seconds();
  const double round_trip = std::max(now - batch.sent_at, compute);
  cohort.round_begun_at = batch.begun_at;
  cohort.round = {.draft = compute,
                  .transfer = round_trip - compute,
                  .commit = now - batch.begun_at - round_trip};
  for (const ProposeBatch::Item& item : batch.items) {
    Sequence* sequence = state.slots.Find(item.slot, item.serial);
    if (sequence != nullptr) sequence->account.Drafted(round_trip, compute);
  }
  TakeRollbacks(state, reply.update_slots());
  cohort.proposals.resize(state.slots.size());
  std::vector<uint32_t> draft_lengths;
  for (size_t i = 0; i < batch.items.size(); ++i) {
    const ProposeBatch::Item& item = batch.items[i];
    Proposal proposal = TakeProposal(state, item, reply.results(static_cast<int>(i)));
    if (item.ring.has_value() && !proposal.ring.has_value()) {
      state.workers.ring().Release(*item.ring);
    }
    draft_lengths.push_back(DepthOfDraft(proposal.parents, proposal.token_ids.size()));
    cohort.proposals[item.slot] = std::move(proposal);
  }
  ObservePropose(state, batch, reply, std::move(draft_lengths), now);
  // The rows of the proposals are in the ring of a verifier that is gone. Entries of a ring that is
  // gone need no release.
  if (batch.verifier_session != state.slots.verifier().session()) cohort.proposals.clear();
}

void LearnProposeCost(RoundState& state) {
  if (!state.measured_propose.has_value()) return;
  MeasuredPropose& measured = *state.measured_propose;
  measured.cost.draft_lengths = measured.draft_lengths;
  state.controller.ObservePropose(measured.cost);
  state.measured_propose.reset();
}

void ForwardLogProbs(RoundState& state, v1::LogProbChunk* chunk, double now) {
  ProposeBatch& batch = *state.propose;
  const auto item =
      std::find_if(batch.items.begin(), batch.items.end(),
                   [&](const ProposeBatch::Item& sent) { return AnswersItem(sent, *chunk); });
  if (item == batch.items.end()) {
    return DropForBrokenRule(state, kDrafterPeer, Internal("sent log-prob rows nobody asked for"),
                             now);
  }
  if (const v1::AttachReply* verifier = state.workers.info(kVerifierPeer); verifier != nullptr) {
    if (absl::Status status = CheckChunk(*item, *chunk, verifier->vocabulary_size());
        !status.ok()) {
      item->broke_rule = true;
      return DropForBrokenRule(state, kDrafterPeer, status, now);
    }
  }
  item->received_bytes += chunk->data().size();
  if (batch.verifier_session != state.slots.verifier().session() ||
      state.slots.Find(item->slot, item->serial) == nullptr) {
    return;
  }
  SendToVerifier send{state.slots.verifier().session(), {}};
  send.command.set_id(state.workers.NextCommandId());
  send.command.mutable_log_prob_chunk()->Swap(chunk);
  state.out.commands.push_back(std::move(send));
}

void OnDrafterLost(RoundState& state) {
  ++state.out.counts.losses[Worker::kDrafter];
  if (state.propose.has_value()) {
    const ProposeBatch lost = *std::exchange(state.propose, std::nullopt);
    state.cohorts[lost.cohort].stage = Cohort::Stage::kProposed;
    state.out.Log(LogLine::Level::kInfo,
                  absl::StrCat("draft: lost while it drafted for ", lost.items.size(), " slots"));
    // If some answers broke a rule, the other requests of the batch are not at fault.
    const bool any_broke_rule = std::any_of(lost.items.begin(), lost.items.end(),
                                            [](const auto& item) { return item.broke_rule; });
    for (const ProposeBatch::Item& item : lost.items) {
      state.slots[item.slot].fallback = Fallback::kDraftFailed;
      Sequence* sequence = state.slots.Find(item.slot, item.serial);
      if (sequence == nullptr) continue;
      if (any_broke_rule && !item.broke_rule) continue;
      const bool was_off = sequence->faults.drafting_off();
      sequence->faults.DrafterLost(state.options.max_lost_rounds);
      if (was_off || !sequence->faults.drafting_off()) continue;
      state.out.LogSlot(
          state.slots, LogLine::Level::kWarning, item.slot,
          absl::StrCat("draft: the request is decoded without drafts: the drafter was lost ",
                       sequence->faults.drafters_lost(), " times in a row while drafting for it"));
    }
  }
  // Proposals that wait lie in a ring that a new drafter replaces.
  for (Cohort& cohort : state.cohorts) {
    for (Proposal& proposal : cohort.proposals) {
      if (proposal.ring.has_value()) proposal = Proposal();
    }
  }
  state.slots.drafter().Lose();
}

}  // namespace tandem
