// What each drafter gains: the tokens of the rounds that it drafted, beside those that plain
// decoding would have given in the same time. docs/metrics.md has the definition.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_DRAFTER_GAIN_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_DRAFTER_GAIN_H_

#include <cstdint>
#include <optional>

#include "services/router/drafting/costs/draft_costs.h"

namespace tandem {

// The rows of an answered Verify. What the rows of each kind attend to is summed over them.
struct JudgedRows {
  uint32_t num_waiting = 0;  // slots that got a token, and waited for everything in the round
  double waiting_attended = 0;
  uint32_t other_rows = 0;  // all rows but those of drafts
  double other_attended = 0;
  uint32_t draft_rows = 0;
  double draft_attended = 0;
};

// The time that drafters took before and beside the pass of the verifier, in seconds.
struct DraftingTime {
  double before = 0;        // draft models and searches
  double beside = 0;        // the verifier's own drafter
  bool overlapped = false;  // another cohort's Verify ran meanwhile, as in DraftBatch
};

// What drafts took from all slots of a round, in tokens of plain decoding. With one slot, these are
// tokens of the request; with n slots, each second of a draft costs n times as many.
struct DraftPrices {
  double row = 0;     // a draft token in the pass of the verifier
  double second = 0;  // a drafter's time before or beside that pass
};

// Returns the prices of a round, from expected costs. Prompts in the round are computed in any
// case: they neither hide drafts nor pay for them. Rounds that overlap with another cohort's take
// the longer of two times, so drafts cost less there.
DraftPrices PricesOf(const RoundCosts& costs, const JudgedRows& rows, const DraftingTime& time);

// A gain, with the half of its 95 % interval.
struct DrafterGain {
  double ratio = 1;
  double error = 0;
};

// Sums over the rounds of one drafter, counted for each slot. The difference of two moments has the
// rounds between them.
class GainSums {
 public:
  // With fewer drafts, a gain is not shown.
  static constexpr uint64_t kLeastDrafts = 30;

  // A round in which the drafter's draft gave `tokens`, while plain decoding would have given
  // `plain_tokens`.
  void AddRound(double tokens, double plain_tokens);
  // Work of the drafter from which no draft came. It varies with the next round.
  void AddWork(double plain_tokens);
  GainSums Since(const GainSums& before) const;

  uint64_t num_drafts() const { return num_drafts_; }
  double tokens() const { return tokens_; }
  double plain_tokens() const { return plain_tokens_; }
  // None: there are too few drafts. The error is that of the ratio of two sums (Cochran, *Sampling
  // Techniques*, 1977, section 2.11). It does not know the errors of the costs.
  std::optional<DrafterGain> gain() const;

 private:
  uint64_t num_drafts_ = 0;
  double tokens_ = 0;
  double plain_tokens_ = 0;
  // Sums of squares, and of products of the two numbers of a round.
  double tokens_squared_ = 0;
  double plain_squared_ = 0;
  double products_ = 0;
  double pending_ = 0;  // work since the last round, which is not in the squares and products yet
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_DRAFTER_GAIN_H_
