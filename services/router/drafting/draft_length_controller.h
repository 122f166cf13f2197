// Chooses how many tokens each slot of a round drafts, so that the whole batch commits the most
// tokens per second. The choice follows from the measured costs of the workers and from how often
// drafts were accepted. It maximizes:
//
//   sum over slots (1 + sum_i P(draft tokens 1 … i are accepted)) / (propose + verify seconds)
//
// If no draft pays, all lengths are 0 and no Propose is sent. docs/controller.md has the cost model
// and the rules of probing. The controller has no I/O, no clock and no randomness: the same calls
// give the same lengths.
//
// The choice does not bias the output. A length is chosen before the draws of its round, from
// rounds that are over: how many draft tokens were tested and accepted, and how long batches took.
// The controller sees no token, no probability, and nothing else of the round that it decides
// about. Callers must keep it so, because a length that depends on the draws of its own round
// biases the committed tokens.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_DRAFT_LENGTH_CONTROLLER_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_DRAFT_LENGTH_CONTROLLER_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "services/router/drafting/acceptance/acceptance_estimate.h"
#include "services/router/drafting/acceptance/trial_schedule.h"
#include "services/router/drafting/catch_up_ledger.h"
#include "services/router/drafting/costs/draft_costs.h"
#include "services/router/drafting/draft_candidate.h"
#include "services/router/drafting/draft_plan.h"
#include "services/router/drafting/lookup/request_lookups.h"
#include "services/router/drafting/plain_rounds.h"
#include "services/router/drafting/probe_schedule.h"

namespace tandem {

struct DraftLengthOptions {
  uint32_t initial_length = 4;  // draft tokens of a slot until costs are measured
  uint32_t max_length = 16;     // largest length that the controller chooses
  double probe_budget = 0.01;   // share of the time that may be spent on finding something out
};

// Combines what is known about the drafter and the machine. AcceptancePrior and AcceptanceEstimate
// say how likely drafts are kept. DraftCosts says how long rounds take. CatchUpLedger says how much
// gain a lagging drafter must promise. From these, DraftPlanner finds the best lengths. PlainRounds
// remembers that no draft pays. ProbeSchedule decides when a round does something else in order to
// find something out.
class DraftLengthController {
 public:
  explicit DraftLengthController(const DraftLengthOptions& options);
  DraftLengthController(const DraftLengthController&) = delete;
  DraftLengthController& operator=(const DraftLengthController&) = delete;

  // Makes the estimate of a new sequence. It refers to the controller, which must outlive it.
  AcceptanceEstimate NewEstimate(AcceptanceMode mode) const {
    return AcceptanceEstimate(&priors_[static_cast<size_t>(mode)]);
  }
  // Makes the trials of a new sequence, for places where something else was found.
  TrialSchedule NewTrials(AcceptanceMode mode) {
    return TrialSchedule(&trial_priors_[static_cast<size_t>(mode)]);
  }
  // Another drafter drafts from now on, over the verifier that `other` knows, which may be this
  // controller. The estimates of sequences that drafted with the former drafter must be made anew.
  void BeginDrafter(const DraftLengthController& other);
  // Returns the number of a request among those of its mode that choose a model, from 0 on.
  uint32_t CountRequest(AcceptanceMode mode) { return num_requests_[static_cast<size_t>(mode)]++; }

  // Call these two functions once for each Propose and each Verify that was answered in full.
  void ObservePropose(const ProposeCost& cost) { costs_.ObservePropose(cost); }
  void ObserveVerify(const VerifyCost& cost) { costs_.ObserveVerify(cost); }
  // Call this function once for each decoding slot of an answered Verify, for the drafts of this
  // model. `judged` says what became of the draft of `num_drafted` tokens, a chain or a tree. Both
  // are empty if the slot had no draft, or a draft that was dropped unjudged. Updates the estimate
  // of the sequence and the prior of its mode.
  void ObserveDraft(uint64_t serial, AcceptanceMode mode, std::span<const JudgedPosition> judged,
                    uint32_t num_drafted, AcceptanceEstimate* acceptance);

  // The same for a draft that no drafter's pass made. Its estimates belong to the caller.
  void ObserveFoundDraft(uint64_t serial, uint32_t num_drafted, uint32_t num_accepted);

  // Sets every candidate's `length` and `num_siblings` for the next round. Call this function once
  // per round.
  void Choose(std::span<DraftCandidate> candidates, DraftBatch batch);

  // What requests have shown of lookups.
  LookupPriors& lookup_priors() { return lookup_priors_; }
  const DraftCosts& costs() const { return costs_; }
  // Returns the seconds that probes may still lose.
  double credit_seconds() const { return probes_.credit_seconds(); }

  // The outcome of the last Choose, for its candidates and everything else in the batch.
  struct LastRound {
    uint32_t num_slots = 0;  // candidates
    double mean_length = 0;
    double plain_seconds = 0;  // expected time of the round without any draft
    double gain = 1;           // expected tokens per second relative to those without any draft
  };
  const LastRound& last_round() const { return last_round_; }
  // Tells the controller that there is no drafter: every round is plain.
  void ChooseNothing() { last_round_ = {}; }

 private:
  // Chooses the lengths of a round while costs are not known yet.
  void ChooseUnmeasured(std::span<DraftCandidate> candidates);
  // Finds the best lengths for the current estimates.
  DraftPlan Plan(std::span<const DraftCandidate> candidates, const DraftBatch& batch,
                 const RoundCosts& costs);
  // Replaces the plan if something should be found out.
  void Probe(std::span<const DraftCandidate> candidates, const DraftBatch& batch,
             const RoundCosts& expected, DraftPlan* plan);
  // Sometimes decodes plainly although drafts seem to pay. Drafts are compared with plain rounds,
  // and rounds with drafts tell little about plain ones.
  bool PlanReference(const DraftBatch& batch, DraftPlan* plan);
  // Tries the lengths that would be best if uncertain costs were at their lower bound.
  bool PlanCostProbe(std::span<const DraftCandidate> candidates, const DraftBatch& batch,
                     const RoundCosts& expected, DraftPlan* plan);
  // Lets one slot draft that would not draft otherwise, to learn how much is accepted.
  void PlanAcceptanceProbe(std::span<const DraftCandidate> candidates, const DraftBatch& batch,
                           const RoundCosts& expected, DraftPlan* plan);
  // Returns true if drafts of the `idle` slots would pay with almost perfect acceptance and the
  // lowest likely costs. Otherwise no outcome of a probe could change anything.
  bool CouldPay(std::span<const DraftCandidate> candidates, std::span<const PlanSlot> slots,
                std::span<const uint32_t> idle, const DraftBatch& batch, const RoundCosts& expected,
                const RoundValue& planned) const;
  // Makes slots from the candidates, with the gains that their estimates promise. The slots point
  // into gains_, which the next call overwrites.
  std::vector<PlanSlot> MakeSlots(std::span<const DraftCandidate> candidates);
  // Sets the siblings of the candidates, whose lengths are set. `counts`: as DraftPlan::siblings.
  void AssignSiblings(std::span<DraftCandidate> candidates, std::span<const uint32_t> counts);
  // Now and then lets a slot draw siblings that are not expected to pay, to learn whether they do.
  void TrySibling(std::span<DraftCandidate> candidates);
  // Returns true if prompts are in the batch, but not yet in too many consecutive rounds. Drafters
  // would wait too long otherwise.
  bool WaitsForPrompts() const;
  void SetLastRound(std::span<const DraftCandidate> candidates, const DraftBatch& batch,
                    const RoundCosts& expected, const DraftPlan& plan);

  const DraftLengthOptions options_;
  std::array<AcceptancePrior, kNumAcceptanceModes> priors_;
  std::array<TrialPrior, kNumAcceptanceModes> trial_priors_;
  std::array<uint32_t, kNumAcceptanceModes> num_requests_ = {};
  LookupPriors lookup_priors_;
  DraftCosts costs_;
  uint64_t num_new_levels_ = 0;
  CatchUpLedger catch_ups_;
  PlainRounds plain_rounds_;
  ProbeSchedule probes_;
  std::vector<double> gains_;      // memory of the slots that MakeSlots made
  double least_sibling_gain_ = 1;  // smallest gain that may pay for a row
  uint32_t rounds_to_sibling_trial_ = 0;
  uint32_t num_sibling_trials_ = 0;
  uint32_t unmeasured_rounds_ = 0;
  uint32_t prompt_rounds_ = 0;  // consecutive rounds with prompts in the batch
  LastRound last_round_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_DRAFT_LENGTH_CONTROLLER_H_
