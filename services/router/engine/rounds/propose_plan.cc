#include "services/router/engine/rounds/propose_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "services/router/drafting/draft_length.h"
#include "services/router/engine/rounds/lookup_round.h"
#include "services/router/engine/rounds/round_state.h"

namespace tandem {
namespace {

// A slot that was not drafted for in this number of rounds loses its rows at the drafter when
// another slot needs pages.
constexpr uint32_t kIdleDraftRounds = 64;

// Tokens that a sequence may have at a worker.
uint32_t ContextOf(const Slots& slots, PeerId peer, uint32_t tokens) {
  const PageBudget& budget = slots.peer(peer).pages();
  return budget.limited() ? static_cast<uint32_t>(std::min<uint64_t>(tokens, budget.capacity()))
                          : tokens;
}

// What limits any draft for the slot. The context of a drafter does not yet.
DraftLengthLimits TargetLimits(const EngineOptions& options, const DraftRoom& room,
                               const Slots& slots, uint32_t slot_id) {
  const Sequence& sequence = *slots[slot_id].sequence;
  DraftLengthLimits limits;
  limits.wanted = options.workers.max_draft_length;
  limits.committed_len = sequence.committed_len();
  limits.remaining_tokens = sequence.remaining_tokens();
  limits.target_context = ContextOf(slots, kVerifierPeer, room.target_context);
  limits.draft_context = std::numeric_limits<uint32_t>::max();
  return limits;
}

// Returns how much the draft model could draft for the slot. 0: nothing, and `why` says why.
uint32_t DraftLimit(const EngineOptions& options, const DraftRoom& room, const Slots& slots,
                    uint32_t slot_id, Fallback* why) {
  const Sequence& sequence = *slots[slot_id].sequence;
  *why = Fallback::kNothingFound;
  if (!sequence.request.drafters.contains(Drafter::kModel)) return 0;
  *why = Fallback::kNoDrafter;
  if (!room.has_drafter) return 0;
  *why = Fallback::kGivenUp;
  if (sequence.faults.drafting_off() || sequence.is_replay() || slot_id >= room.drafter_slots) {
    return 0;
  }
  *why = Fallback::kNoRing;
  if (sequence.request.needs_draft_log_probs() && room.ring_entries == 0) return 0;
  *why = Fallback::kNoRoom;
  DraftLengthLimits limits = TargetLimits(options, room, slots, slot_id);
  limits.draft_context = ContextOf(slots, kDrafterPeer, room.draft_context);
  return LimitDraftLength(limits);
}

// Tokens that a draft is expected to give at its best size, less those that plain rounds would give
// in its time. `chance(i)`: P(token i is accepted). `cost`: what a draft token costs, in tokens of
// plain decoding. `fixed_cost`: the same of a draft of any size.
template <typename Chance>
double WorthOf(size_t limit, double cost, const Chance& chance, double fixed_cost = 0) {
  double worth = -fixed_cost;
  double best = 0;
  for (uint32_t i = 0; i < limit; ++i) {
    worth += chance(i) - cost;
    best = std::max(best, worth);
  }
  return best;
}

// The worth of a chain of at most `limit` tokens.
double WorthOfChain(const AcceptanceEstimate& acceptance, size_t limit, double cost,
                    double fixed_cost) {
  double chance = 1;
  return WorthOf(
      limit, cost, [&](uint32_t i) { return chance *= acceptance.Conditional(i); }, fixed_cost);
}

// How large a draft that was found, or a tree, may be.
LookupLimits LimitsOfFound(const EngineOptions& options, const DraftRoom& room, const Slots& slots,
                           uint32_t slot_id) {
  const Sequence& sequence = *slots[slot_id].sequence;
  const DraftLengthLimits limits = TargetLimits(options, room, slots, slot_id);
  LookupLimits found(
      std::min(LimitDraftLength(limits),
               FixedDraftLength(options, sequence).value_or(options.workers.max_draft_length)));
  // Each token of a tree takes a row of the context.
  const uint32_t used = limits.committed_len + 1;
  found.nodes = std::min(MaxTreeNodes(options, sequence),
                         limits.target_context > used ? limits.target_context - used : 0);
  found.row_cost = room.row_cost;
  return found;
}

// How many tokens a tree of the draft model may have. Each token of a sampled tree takes a row of
// the slot's entry of the ring.
uint32_t MaxDrawnNodes(const EngineOptions& options, const DraftRoom& room, const Slots& slots,
                       uint32_t slot_id) {
  const uint32_t nodes = LimitsOfFound(options, room, slots, slot_id).nodes;
  return slots[slot_id].sequence->request.needs_draft_log_probs()
             ? std::min(nodes, options.workers.max_draft_length)
             : nodes;
}

struct FoundDraft {
  LookupDraft draft;      // without tokens: none, or one of the draft model is worth more
  bool is_trial = false;  // something else is expected to be worth more
  double pace = 0;        // as DraftCandidate::pace
};

// The pace at a place without a match. 0: it is not known, or a match is among what was found.
double PaceWithout(const Sequence& sequence, std::span<const LookupDraft> found) {
  const bool has_match = std::any_of(found.begin(), found.end(), [](const LookupDraft& draft) {
    return FindsMatches(draft.drafter);
  });
  Pace& pace = sequence.lookups->pace();
  pace.OnSearch(has_match);
  return has_match ? 0 : pace.tokens_per_plain_round();
}

// Returns a draft that the slot's lookups found, if it is likely to be worth more than one of the
// draft model, or is to be tried. `limit_of_model`: tokens that the draft model could draft.
FoundDraft FindDraft(const EngineOptions& options, const DraftRoom& room, const Slots& slots,
                     uint32_t slot_id, uint32_t limit_of_model) {
  const Sequence& sequence = *slots[slot_id].sequence;
  if (sequence.lookups == nullptr || sequence.is_replay()) return {};
  const LookupLimits limits = LimitsOfFound(options, room, slots, slot_id);
  std::vector<LookupDraft> found = sequence.lookups->Find(sequence.tokens(), limits);
  FoundDraft result;
  result.pace = PaceWithout(sequence, found);
  if (found.empty()) return result;
  const LookupDraft& best = found.front();
  const double pace = std::max(1.0, result.pace);
  const double of_best = WorthOf(best.chances.size(), pace * room.row_cost,
                                 [&](uint32_t i) { return best.chances[i]; });
  const bool model_is_better =
      limit_of_model > 0 &&
      of_best < WorthOfChain(*sequence.acceptance, std::min(limits.depth, limit_of_model),
                             pace * (room.row_cost + room.pass_cost), pace * room.propose_cost);
  for (size_t i = model_is_better ? 0 : 1; i < found.size(); ++i) {
    if (!sequence.lookups->IsDueForTrial(found[i], room.num_slots)) continue;
    constexpr size_t kTrialTokens = 4;
    found[i].Keep(kTrialTokens);
    result.draft = std::move(found[i]);
    result.is_trial = true;
    return result;
  }
  if (!model_is_better) result.draft = std::move(found.front());
  return result;
}

// Closes the draft of one slot that has not drafted for long and is not to draft now. The close
// goes out before the items of the same command, so slots that are planned later may have the
// pages.
void CloseIdleDraft(const DraftChoice& choice, Slots* slots) {
  std::vector<bool> wants_draft(slots->size());
  for (size_t i = 0; i < choice.ids.size(); ++i) {
    wants_draft[choice.ids[i]] = !choice.candidates[i].has_draft && choice.candidates[i].length > 0;
  }
  for (uint32_t id = 0; id < slots->size(); ++id) {
    const RouterSlot& slot = (*slots)[id];
    if (wants_draft[id] || slot.sequence == nullptr || !slots->drafter().slot(id).open ||
        slot.sequence->acceptance->rounds_without_draft() < kIdleDraftRounds) {
      continue;
    }
    slots->drafter().Close(id);
    slots->drafter().BeginLife(id);
    return;
  }
}

// What is left for the slots that come later in the same batch.
struct RowsLeft {
  uint32_t rows;
  uint32_t catch_up_rows;
  size_t ring_entries;
  int64_t pages_used;  // without those that the rollbacks of the same command return
};

// Plans one slot. None: it does not fit, and the slot's `fallback` says why.
std::optional<ProposePlan> PlanOne(const DraftCandidate& candidate, uint32_t id, Slots* slots,
                                   RowsLeft* left) {
  RouterSlot& slot = (*slots)[id];
  uint32_t draft_length = std::min(candidate.length, candidate.limit);
  slot.fallback = Fallback::kNotWorthwhile;
  if (draft_length == 0) return std::nullopt;
  const bool needs_ring = slot.sequence->request.needs_draft_log_probs();
  slot.fallback = Fallback::kNoRing;
  if (needs_ring && left->ring_entries == 0) return std::nullopt;
  slot.fallback = Fallback::kCatchingUp;
  uint32_t num_tokens = candidate.drafter_lack;
  // A draft follows the pending token, which the drafter has.
  if (num_tokens == 0) return std::nullopt;
  const bool is_far_behind = num_tokens > kFirstChunkRows;
  const uint32_t most_rows = is_far_behind ? std::min(left->rows, left->catch_up_rows) : left->rows;
  if (num_tokens + draft_length - 1 > most_rows) {
    draft_length = 0;
    num_tokens = std::min(num_tokens - 1, most_rows);
  }
  if (num_tokens == 0) return std::nullopt;
  const uint32_t rows = num_tokens + (draft_length > 0 ? draft_length - 1 : 0);
  const PageBudget& pages = slots->drafter().pages();
  const uint32_t begin = slots->drafter().slot(id).cached_len;
  const int64_t need = pages.PagesOf(begin + rows) - pages.PagesOf(begin);
  if (pages.limited() && need > pages.num_free() - left->pages_used) {
    slot.fallback = Fallback::kNoPages;
    return std::nullopt;
  }
  left->pages_used += need;
  left->rows -= rows;
  if (is_far_behind) left->catch_up_rows -= rows;
  if (needs_ring && draft_length > 0) --left->ring_entries;
  return ProposePlan{id, num_tokens, draft_length};
}

// Lets a planned chain have its siblings, if there are rows left for all of them. The draft model
// computes no rows of siblings, but the verifier does.
void AddSiblings(const DraftCandidate& candidate, ProposePlan* plan, RowsLeft* left) {
  const uint32_t num_siblings =
      std::accumulate(candidate.num_siblings.begin(), candidate.num_siblings.end(), 0U);
  if (plan->draft_length < candidate.length || num_siblings > left->rows) return;
  plan->num_siblings = candidate.num_siblings;
  left->rows -= num_siblings;
}

}  // namespace

std::optional<uint32_t> FixedDraftLength(const EngineOptions& options, const Sequence& sequence) {
  return sequence.request.draft_length.has_value() ? sequence.request.draft_length
                                                   : options.draft_length;
}

uint32_t MaxTreeNodes(const EngineOptions& options, const Sequence& sequence) {
  if (sequence.request.max_tree_nodes.has_value()) {
    return std::min(*sequence.request.max_tree_nodes, options.workers.max_tree_nodes);
  }
  // A draft of a fixed length is a chain.
  return FixedDraftLength(options, sequence).has_value() ? 0 : options.workers.max_tree_nodes;
}

DraftChoice GatherCandidates(const EngineOptions& options, const DraftRoom& room, uint32_t cohort,
                             Slots* slots) {
  DraftChoice choice;
  DraftBatch& rest = choice.rest;
  rest.cohort = cohort;
  for (uint32_t id = 0; id < slots->size(); ++id) {
    RouterSlot& slot = (*slots)[id];
    if (slot.sequence == nullptr || slots->IsWaiting(id)) continue;
    if (slot.cohort != cohort) {
      rest.overlapped = true;
      continue;
    }
    const Sequence& sequence = *slot.sequence;
    // While the verifier lacks more than the pending token there is nothing to draft after.
    const uint32_t lack = slots->Lack(kVerifierPeer, id);
    const uint32_t limit = DraftLimit(options, room, *slots, id, &slot.fallback);
    FoundDraft of_lookups;
    if (lack == 1) of_lookups = FindDraft(options, room, *slots, id, limit);
    LookupDraft& found = of_lookups.draft;
    if (lack > 1) {
      const uint32_t rows = std::min(lack, options.step_rows);
      rest.prompt_rows += rows;
      ++rest.prompt_slots;
      rest.prompt_attended += Attended(slots->verifier().slot(id).cached_len, rows);
    } else if (limit == 0 && found.token_ids.empty()) {
      ++rest.plain_rows;
      rest.plain_attended += sequence.committed_len();
    } else {
      DraftCandidate candidate;
      candidate.has_draft = !found.token_ids.empty();
      candidate.acceptance =
          candidate.has_draft ? &sequence.lookups->EstimateOf(found) : &*sequence.acceptance;
      candidate.serial = sequence.serial;
      candidate.limit = candidate.has_draft ? static_cast<uint32_t>(found.token_ids.size()) : limit;
      candidate.fixed = FixedDraftLength(options, sequence);
      if (candidate.fixed.value_or(0) > 0 && !found.parents.empty()) {
        candidate.fixed = candidate.limit;  // the length is the depth of the tree
      }
      candidate.chances = found.chances;
      candidate.context = sequence.committed_len();
      candidate.drafter_lack = candidate.has_draft ? 1 : slots->Lack(kDrafterPeer, id);
      if (!candidate.has_draft) candidate.max_nodes = MaxDrawnNodes(options, room, *slots, id);
      candidate.remaining_tokens = sequence.remaining_tokens();
      candidate.pace = of_lookups.pace;
      choice.candidates.push_back(candidate);
      choice.ids.push_back(id);
      choice.found.push_back(std::move(found));
      choice.is_trial.push_back(of_lookups.is_trial);
    }
  }
  return choice;
}

std::vector<ProposePlan> PlanPropose(const EngineOptions& options, const DraftRoom& room,
                                     const DraftChoice& choice, Slots* slots) {
  const std::vector<uint32_t>& ids = choice.ids;
  // Slots that lack the least go first. A drafter that catches up with a prompt does so in pieces,
  // and the slot decodes plainly meanwhile.
  RowsLeft left;
  left.rows = options.step_rows - std::min(options.step_rows, choice.num_found);
  left.catch_up_rows =
      ids.size() > 1 ? RowsWithinStep(options, slots->drafter().row_seconds().value()) : left.rows;
  left.ring_entries = room.ring_entries;
  left.pages_used = -room.returned_pages;
  std::vector<size_t> by_lack(ids.size());
  std::iota(by_lack.begin(), by_lack.end(), size_t{0});
  std::stable_sort(by_lack.begin(), by_lack.end(), [&](size_t a, size_t b) {
    return choice.candidates[a].drafter_lack < choice.candidates[b].drafter_lack;
  });
  std::vector<ProposePlan> plans;
  std::vector<const DraftCandidate*> planned;
  for (const size_t i : by_lack) {
    if (choice.candidates[i].has_draft) continue;
    const uint32_t id = ids[i];
    if (const auto plan = PlanOne(choice.candidates[i], id, slots, &left)) {
      plans.push_back(*plan);
      planned.push_back(&choice.candidates[i]);
    } else if ((*slots)[id].fallback == Fallback::kNoPages) {
      CloseIdleDraft(choice, slots);
    }
  }
  // No chain is left out for the siblings of another one.
  for (size_t i = 0; i < plans.size(); ++i) AddSiblings(*planned[i], &plans[i], &left);
  return plans;
}

}  // namespace tandem
