// What drafting and verifying cost, in seconds, as the workers measured it.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_DRAFT_COSTS_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_DRAFT_COSTS_H_

#include <cstdint>
#include <span>

#include "services/router/drafting/cost_curve.h"

namespace tandem {

// A Propose batch that was answered.
struct ProposeCost {
  std::span<const uint32_t> draft_lengths;  // one for each item; 0: only caught up
  uint32_t catch_up_rows = 0;               // token_ids of all items
  double compute_seconds = 0;
  double catch_up_seconds = 0;  // part of compute_seconds: the first pass; 0: not known
  double overhead_seconds = 0;  // from the event that it follows from to its reply - compute
};

// A Verify batch that was answered.
struct VerifyCost {
  uint32_t rows = 0;         // committed and draft tokens of all items
  uint32_t prompt_rows = 0;  // those of the rows that belong to prompt chunks
  double attended = 0;       // positions, each counted for every row that attends to it
  double compute_seconds = 0;
  double overhead_seconds = 0;  // from the event that it follows from to its reply - compute
};

// What a round costs.
struct RoundCosts {
  CostTable pass;  // a pass of the drafter, by rows
  // Everything of a Propose but the passes, by draft tokens of all slots.
  CostTable propose_overhead;
  CostTable verify;           // a pass of the verifier without attending, by rows
  double attended = 0;        // seconds for each position that a row of the verifier attends to
  CostTable verify_overhead;  // everything of a Verify but the pass, by rows

  // Seconds of a Verify with so many rows, which attend to so many positions in all.
  double VerifySeconds(uint32_t rows, double positions) const {
    return verify.Seconds(rows) + positions * attended + verify_overhead.Seconds(rows);
  }
  // No cost of any round differs by a larger factor than exp(Distance) between the two.
  double Distance(const RoundCosts& other) const;
};

// The drafter's first pass feeds what its slots lack, each further one a token of every slot that
// drafts so far: all are passes of so many rows. The verifier makes one pass over all rows.
class DraftCosts {
 public:
  DraftCosts();

  void ObservePropose(const ProposeCost& cost);
  void ObserveVerify(const VerifyCost& cost);
  // A round went by: what was measured is that much older.
  void Age();

  // Both workers were measured a few times.
  bool measured() const;

  RoundCosts Expected() const;
  // As low as they may be: by so many standard deviations.
  RoundCosts Optimistic(double deviations) const;
  // Relative errors (standard deviations).
  double PassError(uint32_t rows) const { return pass_.Error(rows); }
  double VerifyError(uint32_t rows) const { return verify_.Error(rows); }

 private:
  CostCurve pass_;
  CostCurve propose_overhead_;
  CostCurve verify_;
  CostCurve verify_overhead_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_DRAFT_COSTS_H_
