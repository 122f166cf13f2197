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

// Draft tokens of a slot that tries a model, whatever the model is expected to gain.
constexpr uint32_t kTrialLength = 2;

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

// Returns how much a draft model could draft for the slot. 0: nothing, and `why` says why.
uint32_t DraftLimit(const EngineOptions& options, const DraftRoom& room, const Slots& slots,
                    PeerId drafter, uint32_t slot_id, Fallback* why) {
  const Sequence& sequence = *slots[slot_id].sequence;
  const ModelRoom& model = room.models[DraftModelOf(drafter)];
  *why = Fallback::kNothingFound;
  if (!sequence.request.drafters.contains(Drafter::kModel)) return 0;
  *why = Fallback::kNoDrafter;
  if (!room.MayUse(model, sequence)) return 0;
  *why = Fallback::kGivenUp;
  if (sequence.faults.drafter(DraftModelOf(drafter)).off() || sequence.is_replay() ||
      slot_id >= model.num_slots) {
    return 0;
  }
  *why = Fallback::kNoRing;
  if (sequence.request.needs_draft_log_probs() && model.ring_entries == 0) return 0;
  *why = Fallback::kNoRoom;
  DraftLengthLimits limits = TargetLimits(options, room, slots, slot_id);
  limits.draft_context = ContextOf(slots, drafter, model.context);
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

// The draft model that drafts for a slot.
struct ModelOfSlot {
  PeerId peer = kDrafterPeer;
  uint32_t limit = 0;  // tokens that it could draft; 0: no model can draft
};

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

// What a chain of the model is expected to give the slot, less what plain decoding would give in
// its time. `num_sharing`: slots of the cohort that draft with this model, and share its passes.
double WorthOfModel(const DraftRoom& room, const Slots& slots, ModelOfSlot model, uint32_t slot_id,
                    uint32_t num_sharing) {
  const Sequence& sequence = *slots[slot_id].sequence;
  const ModelRoom& of_model = room.models[DraftModelOf(model.peer)];
  // All slots of the cohort wait for the passes.
  const double share = std::max(1.0, static_cast<double>(room.num_slots) / num_sharing);
  const double worth =
      WorthOfChain(sequence.models->estimate(DraftModelOf(model.peer)), model.limit,
                   room.row_cost + share * of_model.pass_cost, share * of_model.propose_cost);
  const uint32_t lack = slots.Lack(model.peer, slot_id);
  const double late_rows = lack > kRunningLack ? lack - kRunningLack : 0;
  return worth - late_rows * room.num_slots * of_model.catch_up_cost /
                     CatchUpRounds(sequence.remaining_tokens());
}

// Returns true if a draft model may draft for the slot of the cohort in this round.
bool MayUseModel(const EngineOptions& options, const Slots& slots, uint32_t slot_id,
                 uint32_t cohort) {
  const RouterSlot& slot = slots[slot_id];
  if (slot.sequence == nullptr || slot.cohort != cohort || slots.IsWaiting(slot_id)) return false;
  // A prompt that is not in the verifier's cache is not drafted for.
  if (slots.Lack(kVerifierPeer, slot_id) != 1) return false;
  return AsksDraftModels(options, *slot.sequence);
}

// Number of slots of the cohort that draft with each model, as they chose last.
std::array<uint32_t, kMaxDraftModels> CountUsers(const EngineOptions& options, const Slots& slots,
                                                 uint32_t cohort) {
  std::array<uint32_t, kMaxDraftModels> users = {};
  for (uint32_t id = 0; id < slots.size(); ++id) {
    if (MayUseModel(options, slots, id, cohort)) ++users[slots[id].sequence->models->current()];
  }
  return users;
}

// Chooses the draft model of a slot that decodes, and says in its `fallback` why no model can
// draft.
ModelOfSlot ChooseModel(const EngineOptions& options, const DraftRoom& room,
                        std::span<const uint32_t> users, uint32_t slot_id, Slots* slots) {
  RouterSlot& slot = (*slots)[slot_id];
  ModelChoice& choice = *slot.sequence->models;
  std::array<std::optional<double>, kMaxDraftModels> worths;
  std::array<uint32_t, kMaxDraftModels> limits = {};
  const uint32_t num_models = slots->num_peers() - kDrafterPeer;
  slot.fallback = Fallback::kNoDrafter;
  for (uint32_t model = 0; model < num_models; ++model) {
    const PeerId peer = kDrafterPeer + model;
    Fallback why = Fallback::kNoDrafter;
    limits[model] = DraftLimit(options, room, *slots, peer, slot_id, &why);
    if (slot.fallback == Fallback::kNoDrafter) slot.fallback = why;
  }
  // Where there is no choice, no worth is needed.
  const bool has_choice =
      std::count_if(limits.begin(), limits.end(), [](uint32_t limit) { return limit > 0; }) > 1;
  for (uint32_t model = 0; model < num_models; ++model) {
    if (limits[model] == 0) continue;
    const uint32_t sharing = users[model] + (choice.current() == model ? 0 : 1);
    worths[model] = has_choice ? WorthOfModel(room, *slots, {kDrafterPeer + model, limits[model]},
                                              slot_id, std::max(sharing, 1U))
                               : 0;
  }
  if (num_models == 0 && !slot.sequence->request.drafters.contains(Drafter::kModel)) {
    slot.fallback = Fallback::kNothingFound;
  }
  const std::optional<size_t> chosen = choice.Choose(std::span(worths).first(num_models));
  if (!chosen.has_value()) return {};
  return {kDrafterPeer + static_cast<PeerId>(*chosen), limits[*chosen]};
}

// The pace at a place without a match. 0: it is not known, or a match is among what was found.
double PaceWithout(const Sequence& sequence, std::span<const LookupDraft> found) {
  const bool has_match = std::any_of(found.begin(), found.end(), [](const LookupDraft& draft) {
    return FindsMatches(draft.drafter);
  });
  Pace& pace = sequence.lookups->pace();
  pace.OnSearch(has_match);
  return has_match ? 0 : pace.tokens_per_plain_round();
}

// Returns true if the model can draft in the next round. Whether reading a longer prompt would pay
// is for the controller to say.
bool CanDraftSoon(const EngineOptions& options, const Slots& slots, PeerId peer, uint32_t slot_id) {
  return slots.Lack(peer, slot_id) <=
         RowsWithinStep(options, slots.peer(peer).row_seconds().value());
}

// Returns a draft that the slot's lookups found, if it is likely to be worth more than one of the
// draft model, or is to be tried.
FoundDraft FindDraft(const EngineOptions& options, const DraftRoom& room, const Slots& slots,
                     uint32_t slot_id, ModelOfSlot model) {
  const Sequence& sequence = *slots[slot_id].sequence;
  if (sequence.lookups == nullptr || sequence.is_replay()) return {};
  const LookupLimits limits = LimitsOfFound(options, room, slots, slot_id);
  std::vector<LookupDraft> found = sequence.lookups->Find(sequence.tokens(), limits);
  FoundDraft result;
  result.pace = PaceWithout(sequence, found);
  if (found.empty()) return result;
  const double pace = std::max(1.0, result.pace);
  const auto worth_of = [&](const LookupDraft& draft) {
    return WorthOf(draft.chances.size(), pace * room.row_cost,
                   [&](uint32_t i) { return draft.chances[i]; });
  };
  const ModelRoom& of_model = room.models[DraftModelOf(model.peer)];
  const double of_models_chain =
      model.limit == 0
          ? 0
          : WorthOfChain(sequence.models->estimate(DraftModelOf(model.peer)),
                         std::min(limits.depth, model.limit),
                         pace * (room.row_cost + of_model.pass_cost), pace * of_model.propose_cost);
  // Where neither is worth anything, the controller knows best whether the model should draft.
  const double of_best = worth_of(found.front());
  const bool is_open = of_best <= 0 && model.limit > 0 && !FixedDraftLength(options, sequence);
  const bool model_is_better = of_best < of_models_chain || is_open;
  result.rival_worth = of_models_chain;
  for (size_t i = 1; i < found.size(); ++i) {
    result.rival_worth = std::max(result.rival_worth, worth_of(found[i]));
  }
  for (size_t i = model_is_better ? 0 : 1; i < found.size(); ++i) {
    if (!sequence.lookups->IsDueForTrial(found[i], room.num_slots)) continue;
    constexpr size_t kTrialTokens = 4;
    found[i].Keep(kTrialTokens);
    result.draft = std::move(found[i]);
    result.is_trial = true;
    return result;
  }
  if (model_is_better) return result;
  result.tries_model =
      model.limit > 0 && of_best > of_models_chain &&
      CanDraftSoon(options, slots, model.peer, slot_id) &&
      slots[slot_id].sequence->models->IsDueBesideFound(DraftModelOf(model.peer), room.num_slots);
  if (!result.tries_model) result.draft = std::move(found.front());
  return result;
}

// Adds a slot that can draft with `model`, or that has a draft which was found.
void AddCandidate(const EngineOptions& options, const DraftRoom& room, ModelOfSlot model,
                  uint32_t slot_id, FoundDraft found, const Slots& slots, DraftChoice* choice) {
  const Sequence& sequence = *slots[slot_id].sequence;
  const LookupDraft& draft = found.draft;
  DraftCandidate candidate;
  candidate.has_draft = !draft.token_ids.empty();
  candidate.acceptance = candidate.has_draft ? &sequence.lookups->EstimateOf(draft)
                                             : &sequence.models->estimate(DraftModelOf(model.peer));
  candidate.serial = sequence.serial;
  candidate.limit =
      candidate.has_draft ? static_cast<uint32_t>(draft.token_ids.size()) : model.limit;
  candidate.fixed = FixedDraftLength(options, sequence);
  const bool is_trial = !candidate.has_draft &&
                        (found.tries_model || sequence.models->is_trial()) &&
                        CanDraftSoon(options, slots, model.peer, slot_id);
  if (is_trial && !candidate.fixed.has_value()) candidate.fixed = kTrialLength;
  if (candidate.fixed.value_or(0) > 0 && !draft.parents.empty()) {
    candidate.fixed = candidate.limit;  // the length is the depth of the tree
  }
  candidate.chances = draft.chances;
  candidate.context = sequence.committed_len();
  candidate.drafter_lack = candidate.has_draft ? 1 : slots.Lack(model.peer, slot_id);
  if (!candidate.has_draft && !is_trial) {
    candidate.max_nodes = MaxDrawnNodes(options, room, slots, slot_id);
  }
  candidate.remaining_tokens = sequence.remaining_tokens();
  candidate.pace = found.pace;
  choice->candidates.push_back(candidate);
  choice->ids.push_back(slot_id);
  choice->found.push_back(std::move(found));
}

// Closes the draft of one slot that has not drafted for long and is not to draft now. The close
// goes out before the items of the same command, so slots that are planned later may have the
// pages.
void CloseIdleDraft(const DraftChoice& choice, Slots* slots) {
  WorkerPeer& drafter = slots->peer(choice.peer);
  std::vector<bool> wants_draft(slots->size());
  for (size_t i = 0; i < choice.ids.size(); ++i) {
    wants_draft[choice.ids[i]] = !choice.candidates[i].has_draft && choice.candidates[i].length > 0;
  }
  for (uint32_t id = 0; id < slots->size(); ++id) {
    const RouterSlot& slot = (*slots)[id];
    if (wants_draft[id] || slot.sequence == nullptr || !drafter.slot(id).open ||
        slot.sequence->models->estimate(DraftModelOf(choice.peer)).rounds_without_draft() <
            kIdleDraftRounds) {
      continue;
    }
    drafter.Close(id);
    drafter.BeginLife(id);
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
std::optional<ProposePlan> PlanOne(const DraftCandidate& candidate, PeerId peer, uint32_t id,
                                   Slots* slots, RowsLeft* left) {
  const WorkerPeer& drafter = slots->peer(peer);
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
  const PageBudget& pages = drafter.pages();
  const uint32_t begin = drafter.slot(id).cached_len;
  const int64_t need = pages.PagesOf(begin + rows) - pages.PagesOf(begin);
  if (pages.limited() && need > pages.num_free() - left->pages_used) {
    slot.fallback = Fallback::kNoPages;
    return std::nullopt;
  }
  left->pages_used += need;
  left->rows -= rows;
  if (is_far_behind) left->catch_up_rows -= rows;
  if (needs_ring && draft_length > 0) --left->ring_entries;
  return ProposePlan{id, slot.sequence->serial, begin, num_tokens, draft_length};
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

bool AsksDraftModels(const EngineOptions& options, const Sequence& sequence) {
  return sequence.request.drafters.contains(Drafter::kModel) &&
         FixedDraftLength(options, sequence) != 0U;
}

uint32_t MaxTreeNodes(const EngineOptions& options, const Sequence& sequence) {
  if (sequence.request.max_tree_nodes.has_value()) {
    return std::min(*sequence.request.max_tree_nodes, options.workers.max_tree_nodes);
  }
  // A draft of a fixed length is a chain.
  return FixedDraftLength(options, sequence).has_value() ? 0 : options.workers.max_tree_nodes;
}

void TakenOfRound::Add(std::span<const ProposePlan> plans, double row_seconds) {
  for (const ProposePlan& plan : plans) {
    rows = std::accumulate(plan.num_siblings.begin(), plan.num_siblings.end(),
                           rows + plan.draft_length);
    const bool catches_up = plan.draft_length == 0 || plan.num_tokens > kFirstChunkRows;
    if (catches_up) catch_up_seconds += plan.num_tokens * row_seconds;
  }
}

size_t DraftRoom::num_ready() const {
  return static_cast<size_t>(std::count_if(models.begin(), models.end(),
                                           [](const ModelRoom& model) { return model.ready; }));
}

bool DraftRoom::MayUse(const ModelRoom& model, const Sequence& sequence) const {
  if (!model.ready) return false;
  const std::string& wanted = sequence.request.draft_model;
  if (!wanted.empty()) return wanted == model.name;
  ReadyRoles roles;
  for (const ModelRoom& other : models) {
    roles.canary = roles.canary || (other.ready && other.role == DraftRole::kCanary);
    roles.serving = roles.serving || (other.ready && other.role == DraftRole::kServing);
  }
  return model.role == RoleFor(sequence.models->ArmIn(trial), roles);
}

std::vector<DraftChoice> GatherCandidates(const EngineOptions& options, const DraftRoom& room,
                                          uint32_t cohort, Slots* slots) {
  std::vector<DraftChoice> choices(std::max(slots->num_peers() - kDrafterPeer, 1U));
  for (size_t model = 0; model < choices.size(); ++model) {
    choices[model].peer = kDrafterPeer + static_cast<PeerId>(model);
  }
  DraftBatch rest;
  rest.cohort = cohort;
  const std::array<uint32_t, kMaxDraftModels> users = CountUsers(options, *slots, cohort);
  for (uint32_t id = 0; id < slots->size(); ++id) {
    RouterSlot& slot = (*slots)[id];
    if (slot.sequence == nullptr || slots->IsWaiting(id)) continue;
    if (slot.cohort != cohort) {
      rest.overlapped = true;
      continue;
    }
    // While the verifier lacks more than the pending token there is nothing to draft after.
    if (const uint32_t lack = slots->Lack(kVerifierPeer, id); lack > 1) {
      const uint32_t rows = std::min(lack, options.step_rows);
      rest.prompt_rows += rows;
      ++rest.prompt_slots;
      rest.prompt_attended += Attended(slots->verifier().slot(id).cached_len, rows);
      continue;
    }
    const ModelOfSlot model = ChooseModel(options, room, users, id, slots);
    FoundDraft found = FindDraft(options, room, *slots, id, model);
    if (model.limit == 0 && found.draft.token_ids.empty()) {
      ++rest.plain_rows;
      rest.plain_attended += slot.sequence->committed_len();
      continue;
    }
    const bool has_draft = !found.draft.token_ids.empty();
    AddCandidate(options, room, model, id, std::move(found), *slots,
                 &choices[has_draft ? 0 : DraftModelOf(model.peer)]);
  }
  // For one model, the slots that draft with another one are rows of the verifier.
  for (DraftChoice& choice : choices) {
    choice.rest = rest;
    for (const DraftChoice& other : choices) {
      if (&other == &choice) continue;
      choice.rest.plain_rows += static_cast<uint32_t>(other.candidates.size());
      for (const DraftCandidate& candidate : other.candidates) {
        choice.rest.plain_attended += candidate.context;
      }
    }
  }
  return choices;
}

std::vector<ProposePlan> PlanPropose(const EngineOptions& options, const DraftRoom& room,
                                     const DraftChoice& choice, Slots* slots) {
  const std::vector<uint32_t>& ids = choice.ids;
  // Slots that lack the least go first. A drafter that catches up with a prompt does so in pieces,
  // and the slot decodes plainly meanwhile.
  RowsLeft left;
  const ModelRoom& model = room.models[DraftModelOf(choice.peer)];
  const double row_seconds = slots->peer(choice.peer).row_seconds().value();
  left.rows = options.step_rows - std::min(options.step_rows, choice.taken.rows);
  // Slots that draft with another model, or not at all, wait too, and so do prompts.
  const bool others_wait = ids.size() + choice.rest.plain_rows + choice.rest.prompt_slots > 1;
  left.catch_up_rows =
      others_wait ? RowsWithinStep(options, row_seconds, choice.taken.catch_up_seconds) : left.rows;
  left.ring_entries = model.ring_entries;
  left.pages_used = -model.returned_pages;
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
    if (const auto plan = PlanOne(choice.candidates[i], choice.peer, id, slots, &left)) {
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
