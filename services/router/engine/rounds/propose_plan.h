// Which slots of a cohort draft in this round, and how much: functions over Slots that send
// nothing.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_PROPOSE_PLAN_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_PROPOSE_PLAN_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "common/rpc/protocol.h"
#include "services/router/drafting/draft_candidate.h"
#include "services/router/drafting/draft_plan.h"
#include "services/router/drafting/lookup/lookup_draft.h"
#include "services/router/drafting/roster/draft_roster.h"
#include "services/router/engine/engine_options.h"
#include "services/router/engine/rounds/batches.h"
#include "services/router/engine/slots/slots.h"

namespace tandem {

// What the session of one draft model allows in this round. Times are in plain rounds.
struct ModelRoom {
  bool ready = false;
  double pass_cost = 0.15;     // time of a pass of the model
  double propose_cost = 0.1;   // time of messages with the drafter
  double catch_up_cost = 0;    // time of a row of a prompt; 0: not known yet
  uint32_t num_slots = 0;      // slots of the drafter
  uint32_t context = 0;        // its context tokens
  size_t ring_entries = 0;     // free entries of its log-prob ring
  int64_t returned_pages = 0;  // pages that the rollbacks of the same command return
  std::string_view name = {};  // as requests name the model
  DraftRole role = DraftRole::kServing;
};

// What the workers' sessions allow in this round.
struct DraftRoom {
  // What a row of the verifier takes from all slots, in tokens of plain decoding.
  double row_cost = kGuessedRowCost;
  uint32_t num_slots = 1;                         // slots of the cohort that decode
  uint32_t target_context = 0;                    // context tokens of the verifier
  std::array<ModelRoom, kMaxDraftModels> models;  // by number of the draft model
  uint64_t trial = 0;                             // the canary's: DraftModels::trial

  size_t num_ready() const;  // draft models that are ready
  // Whether the request may draft with the model, as far as names and roles go.
  bool MayUse(const ModelRoom& model, const Sequence& sequence) const;
};

// What the drafters that were planned before take of a round.
struct TakenOfRound {
  uint32_t rows = 0;            // draft tokens, which are rows of the verifier
  double catch_up_seconds = 0;  // time in which draft models read prompts

  // `row_seconds`: time of a row of a prompt of the model that the plans are for.
  void Add(std::span<const ProposePlan> plans, double row_seconds);
};

// What was found for a slot.
struct FoundDraft {
  LookupDraft draft;         // without tokens: none, or one of the draft model is used
  bool is_trial = false;     // something else is expected to be worth more
  bool tries_model = false;  // the draft model drafts, although what was found is worth more
  double pace = 0;           // as DraftCandidate::pace
  // What the best other draft is expected to be worth, in tokens of plain decoding.
  double rival_worth = 0;
};

// The slots of a cohort that can draft now with one draft model or with drafts that were found, and
// what else is in their round.
struct DraftChoice {
  PeerId peer = kDrafterPeer;
  std::vector<DraftCandidate> candidates;
  std::vector<uint32_t> ids;      // slots of the candidates
  std::vector<FoundDraft> found;  // by candidate
  DraftBatch rest;
  TakenOfRound taken;
};

// The draft length that the request fixes, or that the operator does. None: the controller chooses.
std::optional<uint32_t> FixedDraftLength(const EngineOptions& options, const Sequence& sequence);

// Whether the request wants drafts of a draft model.
bool AsksDraftModels(const EngineOptions& options, const Sequence& sequence);

// Largest number of tokens of a tree that may be drafted for the request. 0: only chains.
uint32_t MaxTreeNodes(const EngineOptions& options, const Sequence& sequence);

// Finds the candidates, and chooses a draft model for each slot. Drafts that were found are with
// the first model. Where a slot cannot draft, its `fallback` says why. Returns a choice for each
// draft model, and one if there is none.
std::vector<DraftChoice> GatherCandidates(const EngineOptions& options, const DraftRoom& room,
                                          uint32_t cohort, Slots* slots);

// Plans what fits of the lengths that were chosen for one draft model. Where a slot does not draft,
// its `fallback` says why. A slot that found no page and could have one from an idle draft closes
// that draft.
std::vector<ProposePlan> PlanPropose(const EngineOptions& options, const DraftRoom& room,
                                     const DraftChoice& choice, Slots* slots);

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_PROPOSE_PLAN_H_
