// Remembers rounds in which no draft paid, so that not every round needs a plan.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_PLAIN_ROUNDS_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_PLAIN_ROUNDS_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "services/router/drafting/costs/draft_costs.h"
#include "services/router/drafting/draft_candidate.h"
#include "services/router/drafting/draft_plan.h"

namespace tandem {

// The value of a round without drafts. Prompt chunks and fixed lengths are left out.
struct PlainValue {
  RoundValue value;
  double attending_seconds = 0;  // part of value.seconds: attending to earlier positions
};
PlainValue ValuePlainly(std::span<const DraftCandidate> candidates, const DraftBatch& batch,
                        const RoundCosts& costs);

// Remembers each cohort's last round if no draft paid in it. No draft pays in a later round either,
// if the same slots decode, nothing was drafted meanwhile, and costs have hardly changed. In that
// case, estimates are unchanged, drafters lag more, and requests have fewer rounds left that could
// earn a catch-up back. Planning takes time of the router, which all slots wait for, and more time
// with more slots.
class PlainRounds {
 public:
  // Draft lengths that are not fixed are at most `max_length`.
  explicit PlainRounds(uint32_t max_length) : max_length_(max_length) {}

  // Returns true if the cohort's remembered round shows that no draft pays in this round either.
  // Otherwise forgets the remembered round. Call this function once for each round. `now` is
  // ValuePlainly of the other arguments.
  bool StillHolds(std::span<const DraftCandidate> candidates, const DraftBatch& batch,
                  const RoundCosts& costs, const PlainValue& now);

  // Remembers that no draft pays in the round for which StillHolds just returned false. Plain
  // decoding is at least `advantage` times faster than the best drafts. Does nothing if a draft is
  // at hand.
  void Remember(std::span<const DraftCandidate> candidates, const DraftBatch& batch,
                const RoundCosts& costs, const PlainValue& now, double advantage);

  // Forgets the rounds of all cohorts. A judged draft has changed the estimates.
  void Forget() { rounds_ = {}; }

 private:
  struct Round {
    std::vector<DraftCandidate> candidates;  // their estimates are not stored
    DraftBatch batch;
    RoundCosts costs;
    PlainValue plain;
    // No draft can pay while the logarithm of every cost changes by at most this number.
    double largest_change;
    // `patience` is the number of rounds that may pass without a plan while a larger, but still
    // little, change of costs is seen. `left` is the number of such rounds that are left.
    uint32_t patience;
    uint32_t patience_left;
  };

  // Returns true if the same slots decode as in `then`, so that at most costs have changed.
  static bool HasSlotsOf(const Round& then, std::span<const DraftCandidate> candidates,
                         const DraftBatch& batch);
  // Returns true if no cost has changed so much that drafts could pay.
  bool HasCostsOf(const Round& then, const RoundCosts& costs, const PlainValue& now) const;

  const uint32_t max_length_;
  std::array<std::optional<Round>, kMaxCohorts> rounds_;
  uint32_t next_patience_ = 0;  // patience of the round that is remembered next
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_PLAIN_ROUNDS_H_
