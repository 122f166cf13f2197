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
  room.trial = state.draft_models.trial();
  for (PeerId peer = kDrafterPeer; peer < state.slots.num_peers(); ++peer) {
    if (!state.workers.ready(peer)) continue;
    ModelRoom& model = room.models[DraftModelOf(peer)];
    const v1::AttachReply& info = *state.workers.info(peer);
    model.ready = true;
    model.num_slots = info.max_slots();
    model.context = info.max_context_tokens();
    model.name = info.model();
    model.role = state.draft_models.roster().place(DraftModelOf(peer)).role;
    model.ring_entries = state.workers.ring(peer).num_free();
    for (const uint32_t id : DueRollbacks(state, peer)) {
      model.returned_pages += state.slots.peer(peer).num_extra_pages(id);
    }
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
  const DraftCosts& verify = state.draft_models.controller().costs();
  if (!verify.verify_measured()) return;
  constexpr uint32_t kRows = 8;
  const RoundCosts costs = verify.Expected();
  const uint32_t num_slots = state.cohorts[cohort].num_decoding;
  const double plain = costs.VerifySeconds(num_slots, attended);
  const double with_rows =
      costs.VerifySeconds(num_slots + kRows, attended + kRows * attended / num_slots);
  state.cohorts[cohort].plain_seconds = plain;
  // A row of one slot takes time from all slots of the batch.
  room->row_cost = state.verifier_times.row_cost = num_slots * (with_rows - plain) / kRows / plain;
  for (PeerId peer = kDrafterPeer; peer < state.slots.num_peers(); ++peer) {
    const DraftCosts& of_model = ControllerOf(state, peer).costs();
    if (!of_model.measured()) continue;
    const RoundCosts expected = of_model.Expected();
    ModelRoom& model = room->models[DraftModelOf(peer)];
    // The slots that draft share passes and messages.
    model.pass_cost = expected.pass.Seconds(1) / plain;
    model.propose_cost = expected.propose_overhead.Seconds(1) / plain;
    model.catch_up_cost = state.slots.peer(peer).row_seconds().value() / plain;
  }
}

// Fills one item of the command, and returns what is expected of its answer.
ProposeBatch::Item BuildItem(RoundState& state, PeerId peer, const ProposePlan& plan,
                             v1::ProposeItem* item) {
  RouterSlot& slot = state.slots[plan.slot];
  WorkerPeer& drafter = state.slots.peer(peer);
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
      sent.ring = state.workers.ring(peer).Acquire();
      *item->mutable_ring() = *sent.ring;
    }
  }
  return sent;
}

// Builds a batch and its command. Plans that do not fit their slots any more are left out.
// Returns false if nothing is left, or if the drafter is not the one that the batch was planned
// for.
bool BuildPropose(RoundState& state, uint32_t cohort, const WaitingPropose& planned, double now) {
  WorkerPeer& drafter = state.slots.peer(planned.peer);
  // The loss of a session is known to the sessions first.
  const bool is_gone = state.workers.ready_session(planned.peer) != planned.session;
  std::vector<const ProposePlan*> plans;
  for (const ProposePlan& plan : planned.plans) {
    if (state.slots.Find(plan.slot, plan.serial) == nullptr) continue;
    if (is_gone || drafter.slot(plan.slot).cached_len != plan.begin) {
      state.slots[plan.slot].fallback = Fallback::kDraftFailed;
      continue;
    }
    plans.push_back(&plan);
  }
  if (plans.empty()) return false;
  ProposeBatch batch;
  batch.cohort = cohort;
  batch.peer = planned.peer;
  batch.id = state.workers.NextCommandId();
  batch.session = drafter.session();
  batch.verifier_session = state.slots.verifier().session();
  batch.begun_at = now;
  batch.sent_at = now;
  SendToDrafter send{batch.session, {}};
  send.command.set_id(batch.id);
  v1::Propose* propose = send.command.mutable_propose();
  // The numbers of a slot's commands grow in the order in which the worker carries them out:
  // rollbacks come before items.
  if (std::optional<v1::UpdateSlots> updates = TakeUpdates(state, batch.peer, /*rides=*/true)) {
    *propose->mutable_update_slots() = *std::move(updates);
  }
  for (const ProposePlan* plan : plans) {
    batch.rows += plan->num_tokens;
    batch.items.push_back(BuildItem(state, batch.peer, *plan, propose->add_items()));
  }
  state.out.commands.push_back(std::move(send));
  state.propose = std::move(batch);
  return true;
}

// Sends the next batch of the cohort's round, if one waits. Returns false if there is none.
bool SendWaiting(RoundState& state, uint32_t index, double now) {
  Cohort& cohort = state.cohorts[index];
  while (!cohort.waiting.empty()) {
    const WaitingPropose waiting = std::move(cohort.waiting.back());
    cohort.waiting.pop_back();
    if (BuildPropose(state, index, waiting, now)) {
      cohort.stage = Cohort::Stage::kProposing;
      return true;
    }
  }
  return false;
}

// Also notes in the batch which items are at fault.
absl::Status CheckPropose(const RoundState& state, const v1::ProposeReply& reply,
                          ProposeBatch* batch) {
  TANDEM_RETURN_IF_ERROR(CheckRollbacks(state, batch->peer, reply.update_slots()));
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
void OnRefused(RoundState& state, PeerId peer, const ProposeBatch::Item& item,
               const v1::SlotState& slot, Sequence* sequence) {
  WorkerPeer& drafter = state.slots.peer(peer);
  switch (slot.code()) {
    case v1::WORKER_CODE_ABORTED:
      sequence->faults.drafter(DraftModelOf(peer)).Disagreed();
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
  sequence->faults.drafter(DraftModelOf(peer)).Stop();
  state.out.LogSlot(state.slots, LogLine::Level::kWarning, item.slot,
                    absl::StrCat(PeerName(peer), ": the request is decoded without its drafts: ",
                                 WorkerText(slot.message())),
                    PeerName(peer) + ": a request is decoded without its drafts; the log says why");
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
Proposal TakeProposal(RoundState& state, PeerId peer, const ProposeBatch::Item& item,
                      const v1::ProposeResult& result) {
  Proposal proposal;
  WorkerPeer& drafter = state.slots.peer(peer);
  Sequence* sequence = state.slots.Find(item.slot, item.serial);
  if (sequence == nullptr) return proposal;  // canceled or preempted meanwhile
  if (result.state().code() != v1::WORKER_CODE_OK) {
    OnRefused(state, peer, item, result.state(), sequence);
    return proposal;
  }
  CountCached(&state.out.counts, item, result.num_cached_tokens(), sequence);
  sequence->furthest_draft_len = std::max(sequence->furthest_draft_len, item.end);
  sequence->faults.drafter(DraftModelOf(peer)).Agreed();
  drafter.Hold(item.slot, item.end, result.state().cached_len());
  if (result.draft_token_ids().empty()) return proposal;
  proposal.serial = item.serial;
  proposal.token_ids.assign(result.draft_token_ids().begin(), result.draft_token_ids().end());
  proposal.parents.assign(result.parents().begin(), result.parents().end());
  proposal.ring = item.ring;
  proposal.session = drafter.session();
  proposal.peer = peer;
  proposal.model = state.workers.drafter_name(peer);
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
  // What a worker states beyond the passes that its items can ask for counts for nothing.
  std::vector<uint32_t> pass_rows(reply.pass_rows().begin(), reply.pass_rows().end());
  const bool is_sound = pass_rows.size() <= state.options.workers.max_draft_length + 1 &&
                        std::all_of(pass_rows.begin(), pass_rows.end(), [&](uint32_t rows) {
                          return rows > 0 && rows <= state.options.step_rows;
                        });
  if (!is_sound) pass_rows.clear();
  state.measured_propose = {batch.peer, std::move(draft_lengths), std::move(pass_rows), cost};
  if (batch.rows >= kMinChunkRows && cost.catch_up_seconds > 0) {
    state.slots.peer(batch.peer).row_seconds().Add(cost.catch_up_seconds / batch.rows);
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
    FoundDraft& found = choice->found[i];
    if (found.is_trial) slot.sequence->lookups->OnTrial(found.draft, length > 0);
    if (length == 0) continue;
    left -= length;
    choice->taken.rows += length;
    Proposal proposal = ProposeFound(*slot.sequence, std::move(found.draft), length);
    if (!found.is_trial) proposal.rival_worth = found.rival_worth;
    proposal.pace = std::max(1.0, candidate.pace);
    proposals[choice->ids[i]] = std::move(proposal);
  }
}

// Tells which of the slots that were to try the draft model do so. The others had no room.
void NoteTurns(const DraftChoice& choice, std::span<const ProposePlan> plans, Slots* slots) {
  for (size_t i = 0; i < choice.found.size(); ++i) {
    if (!choice.found[i].tries_model) continue;
    const bool drafts = std::any_of(plans.begin(), plans.end(), [&](const ProposePlan& plan) {
      return plan.slot == choice.ids[i] && plan.draft_length > 0;
    });
    (*slots)[choice.ids[i]].sequence->models->OnTurn(DraftModelOf(choice.peer), drafts);
  }
}

// The drafter was lost with this batch.
void BlameForLoss(RoundState& state, const ProposeBatch& lost) {
  // If some answers broke a rule, the other requests of the batch are not at fault.
  const bool any_broke_rule = std::any_of(lost.items.begin(), lost.items.end(),
                                          [](const auto& item) { return item.broke_rule; });
  for (const ProposeBatch::Item& item : lost.items) {
    state.slots[item.slot].fallback = Fallback::kDraftFailed;
    Sequence* sequence = state.slots.Find(item.slot, item.serial);
    if (sequence == nullptr) continue;
    if (any_broke_rule && !item.broke_rule) continue;
    DrafterFaults& faults = sequence->faults.drafter(DraftModelOf(lost.peer));
    const bool was_off = faults.off();
    faults.Lost(state.options.max_lost_rounds);
    if (was_off || !faults.off()) continue;
    state.out.LogSlot(
        state.slots, LogLine::Level::kWarning, item.slot,
        absl::StrCat(PeerName(lost.peer),
                     ": the request is decoded without its drafts: the drafter was lost ",
                     faults.num_lost(), " times in a row while drafting for it"));
  }
}

}  // namespace

bool SendPropose(RoundState& state, uint32_t index, double now) {
  Cohort& cohort = state.cohorts[index];
  cohort.round = {};
  cohort.propose_seconds = {};
  cohort.waiting.clear();
  const bool uses_lookups = FeedLookups(index, &state.slots);
  DraftRoom room = ReadDraftRoom(state, index);
  // Costs tell which of several drafters is worth more.
  if (uses_lookups || room.num_ready() > 1) {
    const double attended = CountDecoding(state, index);
    room.num_slots = cohort.num_decoding;
    ReadCosts(state, index, attended, &room);
  }
  std::vector<DraftChoice> choices = GatherCandidates(state.options, room, index, &state.slots);
  const bool any = std::any_of(choices.begin(), choices.end(), [](const DraftChoice& choice) {
    return !choice.candidates.empty();
  });
  if (!any) {
    if (room.num_ready() > 0 || uses_lookups) return false;
    state.draft_models.ChooseNothing();
    return false;
  }
  TakenOfRound taken;
  for (DraftChoice& choice : choices) {
    const bool is_first = &choice == &choices.front();
    if (!is_first && !state.draft_models.roster().has(DraftModelOf(choice.peer))) continue;
    DraftLengthController& controller = ControllerOf(state, choice.peer);
    if (choice.candidates.empty() && choices.size() > 1) controller.ChooseNothing();
    controller.Choose(choice.candidates, choice.rest);
    choice.taken = taken;
    if (is_first) TakeFound(state, index, &choice);
    WaitingPropose planned;
    planned.peer = choice.peer;
    taken = choice.taken;
    if (choice.peer < state.slots.num_peers()) {
      const WorkerPeer& drafter = state.slots.peer(choice.peer);
      planned.session = drafter.session();
      planned.plans = PlanPropose(state.options, room, choice, &state.slots);
      NoteTurns(choice, planned.plans, &state.slots);
      taken.Add(planned.plans, drafter.row_seconds().value());
    }
    if (!planned.plans.empty()) cohort.waiting.push_back(std::move(planned));
  }
  std::reverse(cohort.waiting.begin(), cohort.waiting.end());  // the first model is asked first
  cohort.round_begun_at = now;
  return SendWaiting(state, index, now);
}

void OnPropose(RoundState& state, const v1::ProposeReply& reply, double now) {
  const PeerId peer = state.propose->peer;
  if (absl::Status status = CheckPropose(state, reply, &*state.propose); !status.ok()) {
    // The batch is lost with the session, and with it the entries of the ring that the drafter may
    // still fill.
    return DropForBrokenRule(state, peer, status, now);
  }
  const ProposeBatch batch = *std::exchange(state.propose, std::nullopt);
  Cohort& cohort = state.cohorts[batch.cohort];
  cohort.stage = Cohort::Stage::kProposed;
  state.slots.peer(peer).pages().Reported(reply.num_free_pages());
  const double compute = reply.compute_seconds();
  const double round_trip = std::max(now - batch.sent_at, compute);
  cohort.propose_seconds[DraftModelOf(peer)] += now - batch.begun_at;
  cohort.propose_models[DraftModelOf(peer)] = state.workers.drafter_name(peer);
  cohort.round.draft += compute;
  cohort.round.transfer += round_trip - compute;
  cohort.round.commit += now - batch.begun_at - round_trip;
  for (const ProposeBatch::Item& item : batch.items) {
    Sequence* sequence = state.slots.Find(item.slot, item.serial);
    if (sequence != nullptr) sequence->account.Drafted(round_trip, compute);
  }
  TakeRollbacks(state, peer, reply.update_slots());
  cohort.proposals.resize(state.slots.size());
  std::vector<uint32_t> draft_lengths;
  for (size_t i = 0; i < batch.items.size(); ++i) {
    const ProposeBatch::Item& item = batch.items[i];
    Proposal proposal = TakeProposal(state, peer, item, reply.results(static_cast<int>(i)));
    if (item.ring.has_value() && !proposal.ring.has_value()) {
      state.workers.ring(peer).Release(*item.ring);
    }
    draft_lengths.push_back(DepthOfDraft(proposal.parents, proposal.token_ids.size()));
    cohort.proposals[item.slot] = std::move(proposal);
  }
  ObservePropose(state, batch, reply, std::move(draft_lengths), now);
  if (batch.verifier_session == state.slots.verifier().session()) {
    SendWaiting(state, batch.cohort, now);
    return;
  }
  // The rows of the proposals are in the ring of a verifier that is gone. Entries of a ring that is
  // gone need no release.
  cohort.proposals.clear();
  cohort.waiting.clear();
}

void LearnProposeCost(RoundState& state) {
  if (!state.measured_propose.has_value()) return;
  MeasuredPropose& measured = *state.measured_propose;
  measured.cost.draft_lengths = measured.draft_lengths;
  measured.cost.pass_rows = measured.pass_rows;
  ControllerOf(state, measured.peer).ObservePropose(measured.cost);
  state.measured_propose.reset();
}

void ForwardLogProbs(RoundState& state, v1::LogProbChunk* chunk, double now) {
  ProposeBatch& batch = *state.propose;
  const auto item =
      std::find_if(batch.items.begin(), batch.items.end(),
                   [&](const ProposeBatch::Item& sent) { return AnswersItem(sent, *chunk); });
  if (item == batch.items.end()) {
    return DropForBrokenRule(state, batch.peer, Internal("sent log-prob rows nobody asked for"),
                             now);
  }
  if (const v1::AttachReply* verifier = state.workers.info(kVerifierPeer); verifier != nullptr) {
    if (absl::Status status = CheckChunk(*item, *chunk, verifier->vocabulary_size());
        !status.ok()) {
      item->broke_rule = true;
      return DropForBrokenRule(state, batch.peer, status, now);
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

void OnDrafterLost(RoundState& state, PeerId peer, bool let_go, double now) {
  if (!let_go) ++state.out.counts.losses[Worker::kDrafter];
  // Proposals that wait lie in a ring that a new drafter replaces.
  for (Cohort& cohort : state.cohorts) {
    for (Proposal& proposal : cohort.proposals) {
      if (proposal.ring.has_value() && proposal.peer == peer) proposal = Proposal();
    }
  }
  state.slots.peer(peer).Lose();
  if (!state.propose.has_value() || state.propose->peer != peer) return;
  const ProposeBatch lost = *std::exchange(state.propose, std::nullopt);
  state.cohorts[lost.cohort].stage = Cohort::Stage::kProposed;
  state.out.Log(LogLine::Level::kInfo,
                absl::StrCat(PeerName(peer), let_go ? ": unloaded" : ": lost",
                             " while it drafted for ", lost.items.size(), " slots"));
  if (let_go) {
    for (const ProposeBatch::Item& item : lost.items) {
      state.slots[item.slot].fallback = Fallback::kDraftFailed;
    }
  } else {
    BlameForLoss(state, lost);
  }
  SendWaiting(state, lost.cohort, now);
}

}  // namespace tandem
