// How many tokens each slot of a round drafts, so that the whole batch commits the most tokens per
// second, from what the workers were measured to cost and how often drafts were accepted:
//
//   sum over slots (1 + sum_i P(draft tokens 1 … i are accepted)) / (propose + verify seconds)
//
// Where no draft pays, all lengths are 0 and no Propose is sent at all. docs/controller.md has the
// cost model and the rules of probing. No I/O, no clock, no randomness: the same calls give the
// same lengths.
//
// Unbiased: a length is chosen before the round's draws, from rounds that are over (how many draft
// tokens were tested and accepted, how long batches took). Nothing here sees a token, a probability
// or anything else of the round that it decides about; whoever calls must keep it so, as a length
// that depends on the draw it governs biases what is committed.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_DRAFT_LENGTH_CONTROLLER_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_DRAFT_LENGTH_CONTROLLER_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "services/router/drafting/acceptance_estimate.h"
#include "services/router/drafting/catch_up_ledger.h"
#include "services/router/drafting/draft_candidate.h"
#include "services/router/drafting/draft_costs.h"
#include "services/router/drafting/draft_plan.h"
#include "services/router/drafting/plain_rounds.h"
#include "services/router/drafting/probe_schedule.h"

namespace tandem {

struct DraftLengthOptions {
  uint32_t initial_length = 4;  // draft tokens of a slot until costs are measured
  uint32_t max_length = 16;     // largest length that is chosen here
  double probe_budget = 0.01;   // share of the time that may go into finding out
};

// Composes what is known of the drafter and of the machine: AcceptancePrior and AcceptanceEstimate
// say how likely drafts are kept, DraftCosts what rounds take, CatchUpLedger what a lagging drafter
// has to promise. DraftPlanner finds the best lengths for all that, PlainRounds remembers that no
// draft pays, and ProbeSchedule says when to do something else to find out.
class DraftLengthController {
 public:
  explicit DraftLengthController(const DraftLengthOptions& options);
  DraftLengthController(const DraftLengthController&) = delete;
  DraftLengthController& operator=(const DraftLengthController&) = delete;

  // Makes the estimate of a new sequence. It refers to the controller, which must outlive it.
  AcceptanceEstimate NewEstimate(AcceptanceMode mode) const {
    return AcceptanceEstimate(&priors_[static_cast<size_t>(mode)]);
  }

  // Once for each Propose and Verify that was answered in full.
  void ObservePropose(const ProposeCost& cost) { costs_.ObservePropose(cost); }
  void ObserveVerify(const VerifyCost& cost) { costs_.ObserveVerify(cost); }
  // Once for each decoding slot of an answered Verify, with num_drafted = 0 where the slot had no
  // draft (or one that was dropped unjudged): updates the sequence's estimate and its mode's prior.
  void ObserveAcceptance(uint64_t serial, AcceptanceMode mode, uint32_t num_drafted,
                         uint32_t num_accepted, AcceptanceEstimate* acceptance);

  // Sets every candidate's `length` for the next round. Once a round.
  void Choose(std::span<DraftCandidate> candidates, DraftBatch batch);

  const DraftCosts& costs() const { return costs_; }
  // Seconds that probes may lose from here on.
  double credit_seconds() const { return probes_.credit_seconds(); }

  // The outcome of the last Choose, over its candidates and what is beside them in the batch.
  struct LastRound {
    double mean_length = 0;
    double plain_seconds = 0;  // expected time of the round without any draft
    double gain = 1;           // expected tokens a second over those without any draft
  };
  const LastRound& last_round() const { return last_round_; }
  // There is no drafter: every round is plain.
  void ChooseNothing() { last_round_ = {}; }

 private:
  // The lengths of a round while costs are not known yet.
  void ChooseUnmeasured(std::span<DraftCandidate> candidates);
  // The best lengths for what is known.
  DraftPlan Plan(std::span<const DraftCandidate> candidates, const DraftBatch& batch,
                 const RoundCosts& costs);
  // Replaces the plan where something should be found out.
  void Probe(std::span<const DraftCandidate> candidates, const DraftBatch& batch,
             const RoundCosts& expected, DraftPlan* plan);
  // Once in a while decodes plainly where drafts seem to pay. Drafts are compared with plain
  // rounds, and rounds with drafts tell little about these.
  bool PlanReference(const DraftBatch& batch, DraftPlan* plan);
  // Tries the lengths that were best if costs that are not known well were as low as they may be.
  bool PlanCostProbe(std::span<const DraftCandidate> candidates, const DraftBatch& batch,
                     const RoundCosts& expected, DraftPlan* plan);
  // Lets one slot that would not draft do so, to see what is accepted.
  void PlanAcceptanceProbe(std::span<const DraftCandidate> candidates, const DraftBatch& batch,
                           const RoundCosts& expected, DraftPlan* plan);
  // Drafts of the `idle` slots would pay if they were right nearly always and the drafter were as
  // fast as it may be. Where they would not, no outcome of a probe could change anything.
  bool CouldPay(std::span<const DraftCandidate> candidates, std::span<const PlanSlot> slots,
                std::span<const uint32_t> idle, const DraftBatch& batch, const RoundCosts& expected,
                const RoundValue& planned) const;
  // The candidates with the gains that their estimates promise. The slots point into gains_, which
  // the next call overwrites.
  std::vector<PlanSlot> MakeSlots(std::span<const DraftCandidate> candidates);
  // Prompts are in the batch, and have not been in so many rounds in a row that drafters would wait
  // for too long.
  bool WaitsForPrompts() const;
  void SetLastRound(std::span<const DraftCandidate> candidates, const DraftBatch& batch,
                    const RoundCosts& expected, const DraftPlan& plan);

  const DraftLengthOptions options_;
  std::array<AcceptancePrior, kNumAcceptanceModes> priors_;
  DraftCosts costs_;
  CatchUpLedger catch_ups_;
  PlainRounds plain_rounds_;
  ProbeSchedule probes_;
  std::vector<double> gains_;  // memory of the slots that MakeSlots made
  uint32_t unmeasured_rounds_ = 0;
  uint32_t prompt_rounds_ = 0;  // rounds in a row with prompts in the batch
  LastRound last_round_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_DRAFT_LENGTH_CONTROLLER_H_
