// When the controller does something other than its plan to find out what it does not know, and
// what that may cost.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_PROBE_SCHEDULE_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_PROBE_SCHEDULE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "services/router/drafting/draft_plan.h"

namespace tandem {

// Three kinds of rounds find something out. A reference round decodes plainly where drafts seem to
// pay, since drafts are compared with plain rounds. A cost probe tries lengths whose cost is not
// known well. An acceptance probe lets one slot draft that would not. Probes are paid for from a
// credit, into which each round pays a share of its time. docs/controller.md has the rules.
//
// All times are in seconds, and all gaps are in rounds. The schedule decides when to probe and
// whether the credit suffices; which lengths are tried is the controller's decision.
class ProbeSchedule {
 public:
  // `budget` is the share of the time that probes may take with one slot.
  explicit ProbeSchedule(double budget);

  // A round of the cohort begins. The outcome of the cohort's last acceptance probe is not awaited
  // any longer.
  void BeginRound(uint32_t cohort) { probes_[cohort].reset(); }

  // Pays for later probes: a round of `num_slots` >= 1 slots, planned to take `round_seconds`. The
  // credit is limited by `decoding_seconds`, the time of the round without prompt chunks.
  void PayIn(size_t num_slots, double round_seconds, double decoding_seconds);
  // Seconds that probes may still lose.
  double credit_seconds() const { return credit_seconds_; }

  // The plan drafts nothing but fixed lengths.
  void OnPlainPlan();
  // The plan drafts, and commits `rate` tokens a second instead of `plain_rate`. Returns true if
  // the round should decode plainly all the same. Costs nothing of the credit: the two rates are
  // close wherever this returns true.
  bool ReferenceIsDue(double rate, double plain_rate);

  // Returns true once in a while: unsure costs should be looked at.
  bool CostProbeIsDue();
  // Takes `seconds` for a cost probe. Returns false, and takes nothing, if the credit is too small.
  bool BuyCostProbe(double seconds);

  // Counts a round, and returns true if an idle slot should be probed in it. `some_draft`: a slot
  // drafts whose length is not fixed. `some_idle`: a slot does not draft, though it may.
  // `must_wait`: prompts are in the batch, which a probe would delay.
  bool AcceptanceProbeIsDue(bool some_draft, bool some_idle, bool must_wait);
  struct AcceptanceProbe {
    uint64_t serial = 0;           // number of the sequence that drafts
    double seconds = 0;            // time that the probe takes
    double seconds_per_token = 0;  // worth of a token that is accepted
  };
  // Takes the probe's seconds and awaits its outcome in this round of the cohort. Returns false,
  // and takes nothing, if the credit is too small.
  bool BuyAcceptanceProbe(uint32_t cohort, const AcceptanceProbe& probe);
  // The block of a sequence was judged. The worth of accepted tokens goes back into the credit if
  // the block was a probe, and the outcome decides when the next probe comes.
  void OnJudged(uint64_t serial, uint32_t num_drafted, uint32_t num_accepted);

 private:
  bool Spend(double seconds);

  const double budget_;
  bool has_paid_in_ = false;
  double credit_seconds_ = 0;
  uint32_t reference_gap_;  // rounds with drafts from one reference round to the next
  uint32_t rounds_since_plain_ = 0;
  uint32_t cost_gap_ = 1;  // rounds from one look at unsure costs to the next
  uint32_t rounds_since_cost_look_ = 0;
  uint32_t acceptance_gap_;  // rounds from one acceptance probe to the next
  uint32_t rounds_since_acceptance_probe_ = 0;
  uint32_t quick_probes_;  // acceptance probes that may still follow soon on successful ones
  uint32_t rounds_to_quick_probe_ = 0;
  uint32_t barren_rounds_ = 0;  // rounds since a draft, or a probe, was worth its time
  std::array<std::optional<AcceptanceProbe>, kMaxCohorts> probes_;  // outcomes that are awaited
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_PROBE_SCHEDULE_H_
