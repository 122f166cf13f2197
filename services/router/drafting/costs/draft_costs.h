// The costs of drafting and verifying in seconds, from the workers' measurements.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_COSTS_DRAFT_COSTS_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_COSTS_DRAFT_COSTS_H_

#include <cstdint>
#include <span>

#include "services/router/drafting/costs/cost_curve.h"
#include "services/router/drafting/costs/interruptions.h"

namespace tandem {

// An answered Propose batch.
struct ProposeCost {
  std::span<const uint32_t> draft_lengths;   // one for each item; 0: the item only catches up
  uint32_t catch_up_rows = 0;                // number of token_ids in all items
  std::span<const uint32_t> pass_rows = {};  // rows of each pass; empty: as the lengths ask for
  double compute_seconds = 0;
  double catch_up_seconds = 0;  // part of compute_seconds: the first pass; 0: unknown
  // From the event that caused the command to its reply, without compute_seconds.
  double overhead_seconds = 0;
};

// An answered Verify batch.
struct VerifyCost {
  uint32_t rows = 0;         // committed and draft tokens of all items
  uint32_t prompt_rows = 0;  // number of these rows that belong to prompt chunks
  double attended = 0;       // number of attended positions, summed over the rows
  double compute_seconds = 0;
  // From the event that caused the command to its reply, without compute_seconds.
  double overhead_seconds = 0;
};

// The costs of a round.
struct RoundCosts {
  CostTable pass;  // one pass of the drafter, by rows
  // Overhead of a Propose besides its passes, with interruptions, by draft tokens of all slots.
  CostTable propose_overhead;
  CostTable verify;           // one pass of the verifier without attending, by rows
  double attended = 0;        // seconds for each position that a row of the verifier attends to
  CostTable verify_overhead;  // overhead of a Verify besides its pass, with interruptions, by rows

  // Returns the seconds of a Verify with `rows` rows, which attend to `positions` positions in all.
  double VerifySeconds(uint32_t rows, double positions) const {
    return verify.Seconds(rows) + positions * attended + verify_overhead.Seconds(rows);
  }
  // The cost of any round differs between the two by at most a factor of exp(Distance).
  double Distance(const RoundCosts& other) const;
};

// The drafter's first pass feeds the tokens that its slots lack. Each further pass feeds one token
// for every slot that still drafts. The passes are all measured by their numbers of rows. The
// verifier makes one pass over all rows. The curves have costs without interruptions by other work
// on the machine. These are added for each batch.
class DraftCosts {
 public:
  DraftCosts();

  void ObservePropose(const ProposeCost& cost);
  void ObserveVerify(const VerifyCost& cost);
  // Another drafter drafts from now on. What the verifier takes is as in `other`.
  void BeginDrafter(const DraftCosts& other);
  // Makes all measurements one round older.
  void Age();

  // Returns true if both workers were measured a few times.
  bool measured() const;
  // Returns true if the verifier was.
  bool verify_measured() const;

  RoundCosts Expected() const;
  // Returns costs that are this many standard deviations below the expected ones.
  RoundCosts Optimistic(double deviations) const;
  // Returns relative errors (standard deviations).
  double PassError(uint32_t rows) const { return pass_.Error(rows); }
  double VerifyError(uint32_t rows) const { return verify_.Error(rows); }
  // Returns how often a cost jumped.
  uint64_t num_new_levels() const;

 private:
  RoundCosts WithInterruptions(RoundCosts costs) const;

  CostCurve pass_;
  CostCurve propose_overhead_;
  CostCurve verify_;
  CostCurve verify_overhead_;
  Interruptions interruptions_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_COSTS_DRAFT_COSTS_H_
