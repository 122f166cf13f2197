// Decides when the controller departs from its plan to find something out, and limits the cost.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_PROBE_SCHEDULE_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_PROBE_SCHEDULE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "services/router/drafting/draft_plan.h"

namespace tandem {

// Three kinds of rounds find something out. A reference round decodes plainly although drafts seem
// to pay, because drafts are compared with plain rounds. A cost probe tries lengths whose cost is
// uncertain. An acceptance probe lets one slot draft that would not draft otherwise. A credit pays
// for probes. Each round pays a share of its time into the credit. docs/controller.md has the
// rules.
//
// All times are in seconds, and all gaps are in rounds. The schedule decides when to probe, and
// whether the credit suffices. The controller decides which lengths are tried.
class ProbeSchedule {
 public:
  // `budget` is the share of the time that probes may take if there is one slot.
  explicit ProbeSchedule(double budget);

  // Call this function when a round of the cohort begins. The outcome of the cohort's last
  // acceptance probe is not awaited any longer.
  void BeginRound(uint32_t cohort) { probes_[cohort].reset(); }

  // Pays into the credit for a round of `num_slots` >= 1 slots that is planned to take
  // `round_seconds`. `decoding_seconds`, the time of the round without prompt chunks, limits the
  // credit.
  void PayIn(size_t num_slots, double round_seconds, double decoding_seconds);
  // Returns the seconds that probes may still lose.
  double credit_seconds() const { return credit_seconds_; }

  // Call this function when the plan has no drafts except fixed lengths.
  void OnPlainPlan();
  // Call this function when the plan drafts, and commits `rate` tokens per second instead of
  // `plain_rate`. Returns true if the round should decode plainly nevertheless. Such a round takes
  // nothing from the credit, because the two rates are close.
  bool ReferenceIsDue(double rate, double plain_rate);

  // Returns true from time to time: uncertain costs should be examined.
  bool CostProbeIsDue();
  // Takes `seconds` from the credit for a cost probe. Returns false, and takes nothing, if the
  // credit is too small.
  bool BuyCostProbe(double seconds);

  // Call this function when a cost jumped. The next look at uncertain costs is then due at once,
  // and reference rounds follow the next round with drafts: they show whether all rounds changed,
  // or only those with drafts.
  void OnNewLevel();

  // Counts a round. Returns true if an idle slot should be probed in this round. `some_draft`: a
  // slot whose length is not fixed drafts. `some_idle`: a slot does not draft although it may.
  // `must_wait`: prompts are in the batch, and a probe would delay them.
  bool AcceptanceProbeIsDue(bool some_draft, bool some_idle, bool must_wait);
  struct AcceptanceProbe {
    uint64_t serial = 0;           // number of the sequence that drafts
    double seconds = 0;            // time that the probe takes
    double seconds_per_token = 0;  // value of an accepted token
  };
  // Takes the probe's seconds from the credit, and awaits its outcome in this round of the cohort.
  // Returns false, and takes nothing, if the credit is too small.
  bool BuyAcceptanceProbe(uint32_t cohort, const AcceptanceProbe& probe);
  // Call this function when the block of a sequence was judged. If the block was a probe, the value
  // of its accepted tokens goes back into the credit, and the outcome decides when the next probe
  // comes.
  void OnJudged(uint64_t serial, uint32_t num_drafted, uint32_t num_accepted);

 private:
  bool Spend(double seconds);

  const double budget_;
  bool has_paid_in_ = false;
  double credit_seconds_ = 0;
  uint32_t reference_gap_;  // rounds with drafts from one reference round to the next
  uint32_t rounds_since_plain_ = 0;
  uint32_t references_due_ = 0;  // one round with drafts, and reference rounds after it
  uint32_t cost_gap_ = 1;        // rounds from one look at uncertain costs to the next
  uint32_t rounds_since_cost_look_ = 0;
  uint32_t acceptance_gap_;  // rounds from one acceptance probe to the next
  uint32_t rounds_since_acceptance_probe_ = 0;
  uint32_t quick_probes_;  // acceptance probes that may still follow soon after successful ones
  uint32_t rounds_to_quick_probe_ = 0;
  uint32_t barren_rounds_ = 0;  // rounds since a draft or a probe was worth its time
  // Outcomes that are still awaited.
  std::array<std::optional<AcceptanceProbe>, kMaxCohorts> probes_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_PROBE_SCHEDULE_H_
