// Finds the draft lengths of a batch that commit the most tokens per second, for given costs and
// chances of acceptance.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_DRAFT_PLAN_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_DRAFT_PLAN_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "services/router/drafting/acceptance/sibling_gains.h"
#include "services/router/drafting/costs/draft_costs.h"

namespace tandem {

// Largest number of cohorts whose rounds overlap. Each cohort is planned separately.
inline constexpr size_t kMaxCohorts = 2;

// Smallest gain of one slot's drafts, as a share of plain decoding's rate. Measured costs have
// errors of about this size, and drafts are not tried for a gain that may be noise.
inline constexpr double kSingleSlotMargin = 0.01;
// Each doubling of the number of slots adds this share of plain decoding's rate. Many slots keep
// the machine busy without drafts, so drafts can gain only little. The change to drafts then also
// means a catch-up of all slots.
inline constexpr double kMarginOfDoubling = 0.005;

// Returns the gain that drafts must promise in a round of `num_slots` >= 1 slots, as a share of
// plain decoding's rate: 0.01 with one slot, 0.035 with 32.
inline double DraftMargin(size_t num_slots) {
  return kSingleSlotMargin + kMarginOfDoubling * std::log2(static_cast<double>(num_slots));
}

// The other contents of the round's Verify batch.
struct DraftBatch {
  uint32_t plain_rows = 0;    // slots that decode without a draft in any case
  uint32_t prompt_rows = 0;   // rows of prompt chunks
  uint32_t prompt_slots = 0;  // number of slots that these rows belong to
  // Number of positions that all these rows attend to, summed over the rows.
  double plain_attended = 0;
  double prompt_attended = 0;
  // If true, another cohort's Propose runs during this cohort's Verify, and the other way round. A
  // round then takes as long as the longer of the two.
  bool overlapped = false;
  uint32_t cohort = 0;
  // Slots that lack more rows do not draft, unless their length is fixed.
  uint32_t longest_lack = std::numeric_limits<uint32_t>::max();
};

struct PlanSlot {
  // [i]: P(draft token i is accepted), not increasing. The size is the largest allowed length.
  std::span<const double> gains;
  std::optional<uint32_t> fixed;  // length that must not be changed, at most gains.size()
  uint32_t context = 0;           // positions that a row attends to
  uint32_t lack = 1;              // committed tokens that the drafter has no rows for, >= 1
  bool has_draft = false;         // the draft is at hand: it takes no pass of the drafter
  // Siblings that the draft model may draw, as RankSiblings gives them. If `fixed` is set, all of
  // them are drawn.
  std::vector<SiblingGain> siblings = {};
  uint32_t max_nodes = 0;  // tokens of a draft with siblings
  // Number of rounds over which the cost of a catch-up is spread. A catch-up is a lack that is
  // longer than that of a running slot.
  double catch_up_rounds = 1;
};

struct RoundValue {
  double tokens = 0;  // expected number of committed tokens
  double seconds = 0;
  double rate() const { return tokens / seconds; }
};

struct DraftPlan {
  std::vector<uint32_t> lengths;  // one for each slot
  RoundValue value;
  std::vector<uint32_t> plain_lengths;  // no drafts except the fixed lengths
  RoundValue plain;
  // The rate with the best lengths divided by the plain rate, without prompts in the batch. 0:
  // there are no lengths with a draft.
  double drafted_over_plain = 0;
  bool hurried = false;  // drafts would pay, but the usual pace is much faster
  // One for each slot, or none at all: the number of its first siblings, of those at positions
  // within the length, that are drawn.
  std::vector<uint32_t> siblings = {};
};

// What a slot lacks if it drafted in the last round: the pending token and, if all draft tokens
// were accepted, the last of them.
inline constexpr uint32_t kRunningLack = 2;

class DraftPlanner {
 public:
  // Costs and slots must outlive the planner.
  DraftPlanner(const RoundCosts* costs, std::span<const PlanSlot> slots, const DraftBatch& batch);

  // Returns the lengths that maximize tokens / seconds. Prompt chunks are fed in any case, so their
  // time is not charged to drafts. If there are prompt chunks, the lengths maximize tokens - rate *
  // seconds instead. The rate is the largest of these: the rates that the slots reach without the
  // chunks, with drafts and plainly, and the plain rate of all slots that wait for this round,
  // including those of the chunks. All lengths that are not fixed are 0 unless drafts gain more
  // than `margin`.
  //
  // `pace`: tokens that all slots usually commit in the time of a plain round; 0: not known. If
  // that is much faster than this round's best drafts, and there are no prompt chunks, the lengths
  // maximize tokens - rate * seconds for the rate of that pace.
  DraftPlan Best(double margin, double pace = 0) const;

  // Returns the value of given lengths, prompt chunks included. `siblings`: as in DraftPlan.
  RoundValue Value(std::span<const uint32_t> lengths,
                   std::span<const uint32_t> siblings = {}) const;

 private:
  class Tally;
  class Taken;
  struct Item {
    uint32_t slot;
    uint32_t position;
    uint32_t pass;  // number of the drafter's pass that makes it; 0 for a draft at hand
    double gain;
    bool is_sibling = false;
  };

  // The best lengths with at least one draft token that is not fixed.
  struct Found {
    double score = std::numeric_limits<double>::lowest();
    std::vector<uint32_t> lengths;
    std::vector<uint32_t> siblings;
  };

  RoundValue Value(std::span<const uint32_t> lengths, std::span<const uint32_t> siblings,
                   bool with_prompts) const;
  // Returns the number of siblings that each slot has in any case: all of a slot of a fixed length.
  std::vector<uint32_t> FixedSiblings() const;
  // Returns the value of a plain round in which the slots of the prompts decode too.
  RoundValue ValueOfAll() const;
  // Returns the best lengths of the slots with `joins[slot]`, while the other slots are plain. With
  // a rate of 0, the lengths maximize tokens per second.
  Found Search(const std::vector<bool>& joins, bool with_prompts, double rate) const;
  // The same with siblings that may be chosen, or without.
  Found SearchWith(bool siblings, const std::vector<bool>& joins, bool with_prompts,
                   double rate) const;
  Found SearchJoining(bool with_prompts, double rate) const;
  static double Score(const RoundValue& value, double rate) {
    return rate > 0 ? value.tokens - rate * value.seconds : value.rate();
  }

  const RoundCosts* costs_;
  std::span<const PlanSlot> slots_;
  DraftBatch batch_;
  std::vector<Item> items_;     // draft tokens that may be chosen, the best one first
  std::vector<uint32_t> late_;  // slots that lack more than a running slot, the smallest lack first
  uint32_t longest_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_DRAFT_PLAN_H_
