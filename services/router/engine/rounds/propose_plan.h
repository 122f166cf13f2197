// Which slots of a cohort draft in this round, and how much: functions over Slots that send
// nothing.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_PROPOSE_PLAN_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_PROPOSE_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "services/router/drafting/draft_candidate.h"
#include "services/router/drafting/draft_plan.h"
#include "services/router/drafting/lookup/lookup_draft.h"
#include "services/router/engine/engine_options.h"
#include "services/router/engine/slots/slots.h"

namespace tandem {

// What the workers' sessions allow in this round.
struct DraftRoom {
  bool has_drafter = false;  // a draft model is ready
  // What a row of the verifier takes from all slots, in tokens of plain decoding, and the time of a
  // pass of the draft model in plain rounds.
  double row_cost = kGuessedRowCost;
  double pass_cost = 0.15;
  double propose_cost = 0.1;    // time of messages with the drafter, in plain rounds
  uint32_t num_slots = 1;       // slots of the cohort that decode
  uint32_t drafter_slots = 0;   // slots of the drafter
  uint32_t target_context = 0;  // context tokens of the verifier and of the drafter
  uint32_t draft_context = 0;
  size_t ring_entries = 0;     // free entries of the log-prob ring
  int64_t returned_pages = 0;  // pages that the rollbacks of the same command return
};

// The slots of a cohort that can draft now, and what else is in their round.
struct DraftChoice {
  std::vector<DraftCandidate> candidates;
  std::vector<uint32_t> ids;       // slots of the candidates
  std::vector<LookupDraft> found;  // by candidate; without tokens: the drafter is to draft
  std::vector<bool> is_trial;      // by candidate: the draft that was found is tried
  DraftBatch rest;
  uint32_t num_found = 0;  // draft tokens that were found and are used in the round
};

// What a Propose batch does for one slot.
struct ProposePlan {
  uint32_t slot = 0;
  uint32_t num_tokens = 0;                  // committed tokens that are sent
  uint32_t draft_length = 0;                // 0: the drafter only catches up
  std::vector<uint32_t> num_siblings = {};  // as in ProposeItem
};

// The draft length that the request fixes, or that the operator does. None: the controller chooses.
std::optional<uint32_t> FixedDraftLength(const EngineOptions& options, const Sequence& sequence);

// Largest number of tokens of a tree that may be drafted for the request. 0: only chains.
uint32_t MaxTreeNodes(const EngineOptions& options, const Sequence& sequence);

// Finds the candidates. Where a slot cannot draft, its `fallback` says why.
DraftChoice GatherCandidates(const EngineOptions& options, const DraftRoom& room, uint32_t cohort,
                             Slots* slots);

// Plans what fits of the chosen lengths. Where a slot does not draft, its `fallback` says why. A
// slot that found no page and could have one from an idle draft closes that draft.
std::vector<ProposePlan> PlanPropose(const EngineOptions& options, const DraftRoom& room,
                                     const DraftChoice& choice, Slots* slots);

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_PROPOSE_PLAN_H_
