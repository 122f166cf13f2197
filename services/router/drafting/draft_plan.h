// Finds the draft lengths of a batch that commit the most tokens per second, for given costs and
// chances of acceptance.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_DRAFT_PLAN_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_DRAFT_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "services/router/drafting/draft_costs.h"

namespace tandem {

// Largest number of cohorts whose rounds overlap. Each is planned by itself.
inline constexpr size_t kMaxCohorts = 2;

// What else is in the round's Verify batch.
struct DraftBatch {
  uint32_t plain_rows = 0;    // slots that decode without a draft, whatever is chosen
  uint32_t prompt_rows = 0;   // rows of prompt chunks
  uint32_t prompt_slots = 0;  // that these are of
  // Positions that they attend to, each counted for every row that does.
  double plain_attended = 0;
  double prompt_attended = 0;
  // Another cohort's Propose runs while this one's Verify does, and the other way round: a round
  // takes as long as the longer of the two.
  bool overlapped = false;
  uint32_t cohort = 0;
  // Slots that lack more do not draft, unless their length is fixed.
  uint32_t longest_lack = std::numeric_limits<uint32_t>::max();
};

struct PlanSlot {
  // [i]: P(draft tokens 0 … i are all accepted), not increasing. Its size is the most that may be
  // drafted.
  std::span<const double> gains;
  std::optional<uint32_t> fixed;  // length that is not to be changed, at most gains.size()
  uint32_t context = 0;           // positions that a row attends to
  uint32_t lack = 1;              // committed tokens that the drafter has no rows of, >= 1
  // Rounds that feeding a lack which is longer than a running slot's is spread over.
  double catch_up_rounds = 1;
};

struct RoundValue {
  double tokens = 0;  // expected to be committed
  double seconds = 0;
  double rate() const { return tokens / seconds; }
};

struct DraftPlan {
  std::vector<uint32_t> lengths;  // one for each slot
  RoundValue value;
  std::vector<uint32_t> plain_lengths;  // no draft but the fixed ones
  RoundValue plain;
  // Rate of the best lengths with a draft over the plain one, where nothing but decoding slots is
  // in the batch; 0: no such lengths.
  double drafted_over_plain = 0;
};

// What a slot lacks that drafted in the last round: the pending token, and the last draft token
// when all were accepted.
inline constexpr uint32_t kRunningLack = 2;

class DraftPlanner {
 public:
  // Costs and slots must outlive it.
  DraftPlanner(const RoundCosts* costs, std::span<const PlanSlot> slots, const DraftBatch& batch);

  // The lengths that maximize tokens / seconds. Prompt chunks are fed anyway, so their time is not
  // the drafts': with them in the batch, the lengths maximize tokens - rate * seconds, the rate
  // being what the slots reach without the chunks, or all slots do that wait for this round, those
  // of the chunks too. All lengths that are not fixed are 0 unless drafts gain more than `margin`.
  DraftPlan Best(double margin) const;

  // The value of given lengths, prompt chunks included.
  RoundValue Value(std::span<const uint32_t> lengths) const;

 private:
  class Tally;
  struct Item {
    uint32_t slot;
    uint32_t position;
    double gain;
  };

  // The best lengths with at least one draft token that is not fixed.
  struct Found {
    double score = std::numeric_limits<double>::lowest();
    std::vector<uint32_t> lengths;
  };

  RoundValue Value(std::span<const uint32_t> lengths, bool with_prompts) const;
  // The value of a plain round in which the slots of the prompts decode too.
  RoundValue ValueOfAll() const;
  // The best lengths of the slots with `joins[slot]`, while the others are plain. With a rate of 0
  // they maximize tokens per second.
  Found Search(const std::vector<bool>& joins, bool with_prompts, double rate) const;
  Found SearchJoining(bool with_prompts, double rate) const;
  static double Score(const RoundValue& value, double rate) {
    return rate > 0 ? value.tokens - rate * value.seconds : value.rate();
  }

  const RoundCosts* costs_;
  std::span<const PlanSlot> slots_;
  DraftBatch batch_;
  std::vector<Item> items_;     // draft tokens that may be chosen, best first
  std::vector<uint32_t> late_;  // slots that lack more than a running one, the least first
  uint32_t longest_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_DRAFT_PLAN_H_
