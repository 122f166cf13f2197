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
#ifndef TANDEM_SERVICES_ROUTER_DRAFT_LENGTH_CONTROLLER_H_
#define TANDEM_SERVICES_ROUTER_DRAFT_LENGTH_CONTROLLER_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "services/router/acceptance_estimate.h"
#include "services/router/draft_costs.h"
#include "services/router/draft_plan.h"

namespace tandem {

inline constexpr size_t kMaxCohorts = 2;

struct DraftLengthOptions {
  uint32_t initial_length = 4;  // until costs are measured
  uint32_t max_length = 16;     // of adaptive lengths
  double probe_budget = 0.01;   // share of the time that may go into finding out
};

// A slot whose verifier lacks only the pending token.
struct DraftCandidate {
  const AcceptanceEstimate* acceptance = nullptr;
  uint64_t serial = 0;            // of the sequence, to recognize it in ObserveAcceptance
  uint32_t limit = 0;             // room for draft tokens (LimitDraftLength)
  std::optional<uint32_t> fixed;  // what the request asks for: taken as far as `limit` allows
  uint32_t context = 0;           // tokens that it has
  uint32_t drafter_lack = 1;      // committed tokens that the drafter has no rows of, >= 1
  uint32_t remaining_tokens = 1;  // that the request may still emit
  uint32_t length = 0;            // out
};

class DraftLengthController {
 public:
  explicit DraftLengthController(const DraftLengthOptions& options);
  DraftLengthController(const DraftLengthController&) = delete;
  DraftLengthController& operator=(const DraftLengthController&) = delete;

  // For a new sequence. It refers to the controller, which must outlive it.
  AcceptanceEstimate NewEstimate(AcceptanceMode mode) const {
    return AcceptanceEstimate(&priors_[static_cast<size_t>(mode)]);
  }

  // Once for each Propose and Verify that was answered in full.
  void ObservePropose(const ProposeCost& cost) { costs_.ObservePropose(cost); }
  void ObserveVerify(const VerifyCost& cost) { costs_.ObserveVerify(cost); }
  // Once for each decoding slot of an answered Verify, with num_drafted = 0 where it had no draft
  // (or one that was dropped unjudged): updates the sequence's estimate and its mode's prior.
  void ObserveAcceptance(uint64_t serial, AcceptanceMode mode, uint32_t num_drafted,
                         uint32_t num_accepted, AcceptanceEstimate* acceptance);

  // Sets every candidate's `length` for the next round. Once a round.
  void Choose(std::span<DraftCandidate> candidates, DraftBatch batch);

  const DraftCosts& costs() const { return costs_; }
  // What probes may lose from here on.
  double credit_seconds() const { return credit_seconds_; }

  // What the last Choose came to, of its candidates and what is beside them.
  struct LastRound {
    double mean_length = 0;
    double plain_seconds = 0;  // expected, without any draft
    double gain = 1;           // expected tokens a second over those without any draft
  };
  const LastRound& last_round() const { return last_round_; }
  // There is no drafter: every round is plain.
  void ChooseNothing() { last_round_ = {}; }

 private:
  // A round in which no draft paid. As long as the same slots decode, nothing is drafted and costs
  // stay about where they were, none does: estimates stay as they are, drafters lag more, requests
  // have less left to earn a catch-up back with.
  struct PlainRound {
    std::vector<DraftCandidate> candidates;
    DraftBatch batch;
    RoundCosts costs;
    RoundValue value;
    double attending_seconds;  // of value.seconds
    double most_change;        // of the logarithm of any cost that leaves it so
    // Rounds that may go by after costs changed by a little more, until the next look: to plan
    // takes the time of the router, which every slot waits for, and more with many slots.
    uint32_t patience;
    uint32_t patience_left;
  };

  // Catch-ups that drafts have not earned back yet.
  struct Investment {
    double seconds = 0;
    double left = 0;
  };

  // Books what the round's drafts gain. Where drafts end before they earned half of it, the next
  // catch-up has to promise more: beliefs were wrong, and where costs are noisy will be again.
  void Earn(const DraftPlan& plan, double gained_seconds, Investment* investment);

  // Without drafts, prompts and fixed lengths.
  static RoundValue ValuePlainly(std::span<const DraftCandidate> candidates,
                                 const DraftBatch& batch, const RoundCosts& costs,
                                 double* attending_seconds);
  // The same slots decode as in the plain round, and nothing but costs may have changed.
  bool HasSlotsOfPlainRound(std::span<const DraftCandidate> candidates,
                            const DraftBatch& batch) const;
  bool HasCostsOfPlainRound(const DraftBatch& batch, const RoundCosts& costs,
                            double attending_seconds) const;
  DraftPlan Plan(std::span<const DraftCandidate> candidates, const DraftBatch& batch,
                 const RoundCosts& costs);
  // Gains of every candidate, from its estimate or, where it would not draft, as if it were right
  // nearly always.
  std::vector<PlanSlot> MakeSlots(std::span<const DraftCandidate> candidates);
  // Tries the lengths that were best if costs that are not known well were as low as they may be.
  bool ProbeCosts(std::span<const DraftCandidate> candidates, const DraftBatch& batch,
                  const RoundCosts& expected, DraftPlan* plan);
  // Once in a while decodes plainly where drafts seem to pay: it is what they are compared with,
  // and what rounds with drafts say about it is hearsay.
  bool Refer(const DraftBatch& batch, DraftPlan* plan);
  // Lets one slot that would not draft do so, to see what is accepted.
  void ProbeAcceptance(std::span<const DraftCandidate> candidates, const DraftBatch& batch,
                       const RoundCosts& expected, DraftPlan* plan);
  bool Spend(double seconds);

  DraftLengthOptions options_;
  std::array<AcceptancePrior, kNumAcceptanceModes> priors_;
  DraftCosts costs_;
  std::vector<double> gains_;  // of MakeSlots: [candidates * max_length]
  std::array<std::optional<PlainRound>, kMaxCohorts> plain_rounds_;

  // A probe whose outcome is not known yet.
  struct Probe {
    uint64_t serial;
    double seconds;            // that it cost
    double seconds_per_token;  // what a token is worth
  };

  // Share of plain decoding's rate that drafts have to gain where drafters lag, by number of slots:
  // [i] of 2^i to 2^(i+1) - 1.
  static constexpr size_t kNumMargins = 8;
  static size_t Bucket(size_t num_slots) {
    return std::min<size_t>(std::bit_width(num_slots), kNumMargins) - 1;
  }
  std::array<double, kNumMargins> catch_up_margins_;
  std::array<Investment, kMaxCohorts> investments_;
  uint32_t unmeasured_rounds_ = 0;  // until costs are known
  bool paid_in_ = false;
  double credit_seconds_ = 0;  // that probes may lose
  uint32_t cost_gap_ = 1;      // rounds from one look for costs to probe to the next
  uint32_t rounds_since_cost_look_ = 0;
  uint32_t reference_gap_;  // rounds with drafts from one plain round to the next
  uint32_t rounds_since_plain_ = 0;
  uint32_t probe_gap_;  // rounds from one probe of acceptance to the next
  uint32_t rounds_since_probe_ = 0;
  uint32_t quick_probes_;  // that may still follow soon
  uint32_t rounds_to_quick_probe_ = 0;
  uint32_t barren_rounds_ = 0;  // since a draft, or a probe, was worth it
  std::array<std::optional<Probe>, kMaxCohorts> probes_;
  uint32_t prompt_rounds_ = 0;  // in a row
  LastRound last_round_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFT_LENGTH_CONTROLLER_H_
