// The memory of rounds in which no draft paid, so that the same question is not asked each round.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_PLAIN_ROUNDS_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_PLAIN_ROUNDS_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "services/router/drafting/draft_candidate.h"
#include "services/router/drafting/draft_costs.h"
#include "services/router/drafting/draft_plan.h"

namespace tandem {

// A round that drafts nothing; prompt chunks and fixed lengths are left out of it.
struct PlainValue {
  RoundValue value;
  double attending_seconds = 0;  // part of value.seconds: attending to earlier positions
};
PlainValue ValuePlainly(std::span<const DraftCandidate> candidates, const DraftBatch& batch,
                        const RoundCosts& costs);

// Each cohort's last round, if no draft paid in it. As long as the same slots decode, nothing is
// drafted and costs stay about where they were, no draft pays: estimates stay as they are, drafters
// lag more, and requests have less left in which a catch-up could be earned back. Planning takes
// the router's time, for which every slot waits, and takes more of it with more slots.
class PlainRounds {
 public:
  // Draft lengths that are not fixed are at most `max_length`.
  explicit PlainRounds(uint32_t max_length) : max_length_(max_length) {}

  // Returns true if the cohort's remembered round says that no draft pays in this one either, and
  // otherwise forgets the remembered round. Call it once for each round; `now` is ValuePlainly of
  // the other arguments.
  bool StillHolds(std::span<const DraftCandidate> candidates, const DraftBatch& batch,
                  const RoundCosts& costs, const PlainValue& now);

  // No draft pays in the round for which StillHolds just returned false. `advantage` is how many
  // times faster plain decoding is than the best drafts would have to be at least.
  void Remember(std::span<const DraftCandidate> candidates, const DraftBatch& batch,
                const RoundCosts& costs, const PlainValue& now, double advantage);

  // A draft was judged, so that estimates have changed: forgets the rounds of all cohorts.
  void Forget() { rounds_ = {}; }

 private:
  struct Round {
    std::vector<DraftCandidate> candidates;  // without their estimates
    DraftBatch batch;
    RoundCosts costs;
    PlainValue plain;
    // Change of any cost's logarithm up to which no draft can pay.
    double largest_change;
    // Rounds that may go by without a plan while costs changed by more than that, but by little;
    // and how many of these rounds are left.
    uint32_t patience;
    uint32_t patience_left;
  };

  // The same slots decode as in `then`, and nothing but costs can have changed.
  static bool HasSlotsOf(const Round& then, std::span<const DraftCandidate> candidates,
                         const DraftBatch& batch);
  // No cost has changed by so much that drafts could pay.
  bool HasCostsOf(const Round& then, const RoundCosts& costs, const PlainValue& now) const;

  const uint32_t max_length_;
  std::array<std::optional<Round>, kMaxCohorts> rounds_;
  uint32_t next_patience_ = 0;  // patience of the round that is remembered next
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_PLAIN_ROUNDS_H_
