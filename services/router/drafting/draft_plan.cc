#include "services/router/drafting/draft_plan.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace tandem {
namespace {

// Number of lengths beyond the best one so far that are tried before the search ends. A verifier's
// cost has steps, so one more token may look bad although two more are good.
constexpr uint32_t kPatience = 2;
// The usual pace counts if it is this many times the best rate of the round. It is measured from
// few tokens, and a round like the others has about the same rate.
constexpr double kMuchFaster = 1.25;

}  // namespace

// Sums up a round while draft tokens are added one by one. A token is added after the tokens before
// it in its slot.
class DraftPlanner::Tally {
 public:
  Tally(const DraftPlanner& planner, bool with_prompts)
      : planner_(planner),
        costs_(*planner.costs_),
        rows_(planner.batch_.plain_rows + static_cast<uint32_t>(planner.slots_.size())),
        tokens_(rows_),
        attended_(planner.batch_.plain_attended),
        drafting_(planner.longest_) {
    for (const PlanSlot& slot : planner.slots_) attended_ += slot.context;
    if (!with_prompts) return;
    rows_ += planner.batch_.prompt_rows;
    attended_ += planner.batch_.prompt_attended;
  }

  void Add(uint32_t slot_id, uint32_t position) {
    const PlanSlot& slot = planner_.slots_[slot_id];
    ++rows_;
    attended_ += slot.context;
    tokens_ += slot.gains[position];
    if (slot.has_draft) return;
    if (position == 0) {
      const uint32_t lack = std::min(slot.lack, kRunningLack);
      first_rows_ += lack;
      if (slot.lack > lack) {
        late_seconds_ +=
            (costs_.pass.Seconds(slot.lack) - costs_.pass.Seconds(lack)) / slot.catch_up_rounds;
      }
    } else {
      uint32_t& rows = drafting_[position];
      pass_seconds_ += costs_.pass.Seconds(rows + 1) - costs_.pass.Seconds(rows);
      ++rows;
    }
    ++draft_tokens_;
  }

  void AddSibling(uint32_t slot_id, double gain) {
    ++rows_;
    attended_ += planner_.slots_[slot_id].context;
    tokens_ += gain;
  }

  // The first `count` siblings of those before `length`.
  void AddSiblings(uint32_t slot_id, uint32_t length, uint32_t count) {
    for (const SiblingGain& sibling : planner_.slots_[slot_id].siblings) {
      if (count == 0) return;
      if (sibling.position >= length) continue;
      AddSibling(slot_id, sibling.gain);
      --count;
    }
  }

  RoundValue value() const {
    const double verify = costs_.VerifySeconds(rows_, attended_);
    double propose = 0;
    if (draft_tokens_ > 0) {
      propose = costs_.pass.Seconds(first_rows_) + pass_seconds_ + late_seconds_ +
                costs_.propose_overhead.Seconds(draft_tokens_);
    }
    return {tokens_, planner_.batch_.overlapped ? std::max(propose, verify) : propose + verify};
  }

 private:
  const DraftPlanner& planner_;
  const RoundCosts& costs_;
  uint32_t rows_;
  double tokens_;
  double attended_;
  uint32_t first_rows_ = 0;
  uint32_t draft_tokens_ = 0;  // those that the drafter makes
  double pass_seconds_ = 0;
  double late_seconds_ = 0;
  // [position]: number of slots that draft a token at this position.
  std::vector<uint32_t> drafting_;
};

// The tokens that were taken so far, and whether another one may be taken.
class DraftPlanner::Taken {
 public:
  Taken(const DraftPlanner& planner, std::vector<uint32_t> siblings)
      : planner_(planner), siblings_(std::move(siblings)) {
    for (const PlanSlot& slot : planner.slots_) lengths_.push_back(slot.fixed.value_or(0));
  }

  // Returns false if the token must be left out.
  bool Take(const Item& item) {
    uint32_t& length = lengths_[item.slot];
    uint32_t& siblings = siblings_[item.slot];
    // A chain may be longer than a tree may be large, but not once it has siblings.
    const bool is_tree = item.is_sibling || siblings > 0;
    if (is_tree && length + siblings >= planner_.slots_[item.slot].max_nodes) return false;
    // The token before it, or beside it, was left out.
    if (item.position + (item.is_sibling ? 1 : 0) > length) return false;
    ++(item.is_sibling ? siblings : length);
    return true;
  }

  std::vector<uint32_t>& lengths() { return lengths_; }
  std::vector<uint32_t>& siblings() { return siblings_; }

 private:
  const DraftPlanner& planner_;
  std::vector<uint32_t> lengths_;
  std::vector<uint32_t> siblings_;
};

DraftPlanner::DraftPlanner(const RoundCosts* costs, std::span<const PlanSlot> slots,
                           const DraftBatch& batch)
    : costs_(costs), slots_(slots), batch_(batch) {
  for (uint32_t id = 0; id < slots.size(); ++id) {
    const PlanSlot& slot = slots[id];
    const auto size = static_cast<uint32_t>(slot.gains.size());
    // A draft at hand takes no pass, however many tokens it has.
    longest_ = std::max(longest_, slot.has_draft ? std::min(size, 1U) : size);
    if (slot.fixed.has_value()) continue;
    for (uint32_t i = 0; i < size; ++i) {
      items_.push_back({id, i, slot.has_draft ? 0 : i, slot.gains[i]});
    }
    for (const SiblingGain& sibling : slot.siblings) {
      items_.push_back({id, sibling.position, sibling.position, sibling.gain, true});
    }
    if (size > 0 && slot.lack > kRunningLack) late_.push_back(id);
  }
  // The sort is stable, so that items of one slot with equal gains stay in the order of their
  // positions, and a sibling stays behind the chain's token at its position.
  std::stable_sort(items_.begin(), items_.end(),
                   [](const Item& a, const Item& b) { return a.gain > b.gain; });
  std::stable_sort(late_.begin(), late_.end(), [&](uint32_t a, uint32_t b) {
    return slots_[a].lack / slots_[a].catch_up_rounds < slots_[b].lack / slots_[b].catch_up_rounds;
  });
}

std::vector<uint32_t> DraftPlanner::FixedSiblings() const {
  std::vector<uint32_t> siblings;
  for (const PlanSlot& slot : slots_) {
    const size_t count = slot.fixed.has_value() ? slot.siblings.size() : 0;
    siblings.push_back(static_cast<uint32_t>(count));
  }
  return siblings;
}

RoundValue DraftPlanner::Value(std::span<const uint32_t> lengths,
                               std::span<const uint32_t> siblings) const {
  return Value(lengths, siblings, true);
}

RoundValue DraftPlanner::Value(std::span<const uint32_t> lengths,
                               std::span<const uint32_t> siblings, bool with_prompts) const {
  Tally tally(*this, with_prompts);
  for (uint32_t id = 0; id < slots_.size(); ++id) {
    for (uint32_t i = 0; i < lengths[id]; ++i) tally.Add(id, i);
    if (!siblings.empty()) tally.AddSiblings(id, lengths[id], siblings[id]);
  }
  return tally.value();
}

RoundValue DraftPlanner::ValueOfAll() const {
  double attended = batch_.plain_attended;
  for (const PlanSlot& slot : slots_) attended += slot.context;
  const uint32_t rows =
      batch_.plain_rows + batch_.prompt_slots + static_cast<uint32_t>(slots_.size());
  return {static_cast<double>(rows), costs_->VerifySeconds(rows, attended)};
}

DraftPlanner::Found DraftPlanner::Search(const std::vector<bool>& joins, bool with_prompts,
                                         double rate) const {
  Found found = SearchWith(true, joins, with_prompts, rate);
  const bool any_siblings =
      std::any_of(items_.begin(), items_.end(), [](const Item& item) { return item.is_sibling; });
  if (!any_siblings) return found;
  // A chain may have more tokens than a tree.
  Found chains = SearchWith(false, joins, with_prompts, rate);
  return chains.score > found.score ? chains : found;
}

DraftPlanner::Found DraftPlanner::SearchWith(bool siblings, const std::vector<bool>& joins,
                                             bool with_prompts, double rate) const {
  const std::vector<uint32_t> fixed_siblings = FixedSiblings();
  Tally base(*this, with_prompts);
  for (uint32_t id = 0; id < slots_.size(); ++id) {
    const uint32_t length = slots_[id].fixed.value_or(0);
    for (uint32_t i = 0; i < length; ++i) base.Add(id, i);
    base.AddSiblings(id, length, fixed_siblings[id]);
  }
  // With at most `depth` passes, all draft tokens cost about the same. The best tokens are the most
  // likely ones, so the search only looks for their number.
  Found found;
  size_t best_end = 0;
  uint32_t best_depth = 0;
  const auto take = [&](const Item& item, uint32_t depth, Taken* taken) {
    return item.pass < depth && joins[item.slot] && (siblings || !item.is_sibling) &&
           taken->Take(item);
  };
  for (uint32_t depth = 1; depth <= longest_ && depth <= best_depth + kPatience; ++depth) {
    Tally tally = base;
    Taken taken(*this, fixed_siblings);
    for (size_t i = 0; i < items_.size(); ++i) {
      const Item& item = items_[i];
      if (!take(item, depth, &taken)) continue;
      if (item.is_sibling) {
        tally.AddSibling(item.slot, item.gain);
      } else {
        tally.Add(item.slot, item.position);
      }
      const double score = Score(tally.value(), rate);
      if (score <= found.score) continue;
      found.score = score;
      best_end = i + 1;
      best_depth = depth;
    }
  }
  if (best_end == 0) return found;
  Taken taken(*this, fixed_siblings);
  for (size_t i = 0; i < best_end; ++i) take(items_[i], best_depth, &taken);
  found.lengths = std::move(taken.lengths());
  found.siblings = std::move(taken.siblings());
  return found;
}

DraftPlanner::Found DraftPlanner::SearchJoining(bool with_prompts, double rate) const {
  const bool limited = batch_.longest_lack != std::numeric_limits<uint32_t>::max();
  std::vector<bool> joins(slots_.size(), true);
  for (uint32_t id : late_) joins[id] = limited && slots_[id].lack <= batch_.longest_lack;
  Found best = Search(joins, with_prompts, rate);
  if (limited) return best;
  // Tries one slot that must catch up, then two, four and so on. A Propose may not be worth its
  // cost for one such slot, although it is for all of them together.
  size_t joined = 0;
  for (size_t count = 1; joined < late_.size(); count *= 2) {
    for (; joined < std::min(count, late_.size()); ++joined) joins[late_[joined]] = true;
    Found found = Search(joins, with_prompts, rate);
    if (found.score > best.score) best = std::move(found);
  }
  return best;
}

DraftPlan DraftPlanner::Best(double margin, double pace) const {
  DraftPlan plan;
  plan.plain_lengths.reserve(slots_.size());
  for (const PlanSlot& slot : slots_) plan.plain_lengths.push_back(slot.fixed.value_or(0));
  plan.lengths = plan.plain_lengths;
  plan.siblings = FixedSiblings();
  plan.plain = Value(plan.plain_lengths, plan.siblings);
  plan.value = plan.plain;
  if (items_.empty()) return plan;

  Found found = SearchJoining(false, 0);
  double rate = 0;
  if (batch_.prompt_rows > 0) {
    rate = std::max(
        {found.score, Value(plan.plain_lengths, plan.siblings, false).rate(), ValueOfAll().rate()});
    found = SearchJoining(true, rate);
  } else {
    plan.drafted_over_plain = std::max(0.0, found.score / plan.plain.rate());
    const double usual = pace / plan.plain.seconds;
    if (usual > kMuchFaster * std::max(found.score, plan.plain.rate())) {
      rate = usual;
      found = SearchJoining(false, rate);
    }
  }
  const double plain_score = Score(plan.plain, rate);
  const double least = rate > 0 ? margin * plan.plain.tokens : margin * plain_score;
  if (found.score <= plain_score + least) {
    plan.hurried = batch_.prompt_rows == 0 && rate > 0 && plan.drafted_over_plain > 1 + margin;
    return plan;
  }
  plan.lengths = std::move(found.lengths);
  plan.siblings = std::move(found.siblings);
  plan.value = Value(plan.lengths, plan.siblings);
  return plan;
}

}  // namespace tandem
