#include "services/router/draft_length_controller.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace tandem {
namespace {

// Until costs are measured a round has no more draft tokens than these.
constexpr uint32_t kInitialDraftTokens = 16;
// What drafts must be expected to gain with one slot, and more for each doubling of the slots: they
// are not tried for what may be noise. Where many slots keep the machine busy anyway, little is to be
// gained, and to change over to drafts is a catch-up of all of them.
constexpr double kMargin = 0.01;
constexpr double kMarginOfDoubling = 0.005;
// The most that drafts may have to gain where drafters catch up, and rounds in which it is
// forgotten that catch-ups were in vain.
constexpr double kMostCatchUpMargin = 0.2;
constexpr double kMarginMemory = 4000;
// Draft tokens less likely than this to be kept are not considered.
constexpr double kLeastGain = 0.02;
// A catch-up is an investment: it is spread over the rounds that the request is likely to go on
// for (a half of what it may still emit, at two tokens a round), but not over more than these.
constexpr double kMostCatchUpRounds = 128;

constexpr uint32_t kProbeLength = 2;
// Rounds from one probe of acceptance to the next: at first, after one that was worth it, and the
// most that doubling after others comes to. Where nothing was worth it for long, the gap is this
// part of that time: drafts that pay again are found out within an eighth of what they did not.
constexpr uint32_t kFirstGap = 16;
constexpr uint32_t kShortestGap = 2;
constexpr uint32_t kLongestGap = 128;
constexpr uint32_t kBarrenRoundsOfGap = 8;
constexpr uint32_t kLongestBarrenGap = 512;
// Probes in a row that may follow soon on ones that were worth it, without a plan that drafts: where
// drafts would about earn their cost, but not the margin, each is worth it and none tells anything
// new. One more for each kLongestGap rounds.
constexpr uint32_t kMostQuickProbes = 8;
constexpr uint32_t kLongestCostGap = 64;
// Rounds with drafts until a plain one: at first, and the most that doubling comes to.
constexpr uint32_t kFirstReference = 8;
constexpr uint32_t kLongestReference = 64;
// Rounds with prompts in a row after which a drafter catches up beside them all the same.
constexpr uint32_t kPatientRounds = 8;
// Rows that a drafter may lack to catch up beside prompts.
constexpr uint32_t kShortLack = 16;
// Rows beyond kRunningLack that are not worth calling a catch-up: plain rounds now and then.
constexpr uint32_t kSlack = 3;
// Slots that catch up in a round in which no other drafts.
constexpr size_t kFirstToCatchUp = 2;
// Factor by which drafts seem to gain so much that it need not be asked whether they do.
constexpr double kClearGain = 1.15;
// Slots by which the share of the time that probes may take is halved: what one is told, all know.
constexpr double kSharingSlots = 10;
// What probes may have in hand, in rounds, at first and at most.
constexpr double kInitialCredit = 2;
constexpr double kMostCredit = 8;
// Acceptance that would have to pay before a probe is worth while.
constexpr double kHopedAcceptance = 0.95;
// Rounds without a look at costs that changed a little, at most, and slots for each of them.
constexpr uint32_t kMostPlainPatience = 7;
constexpr uint32_t kSlotsOfPatience = 2;
// Of the logarithm of any cost.
constexpr double kLittleChange = 0.1;
// Standard deviations by which an unsure cost may be lower than thought.
constexpr double kOptimism = 2;
// Relative error of a cost that is known well enough.
constexpr double kKnown = 0.05;

double Margin(size_t num_slots) {
  return kMargin + kMarginOfDoubling * std::log2(static_cast<double>(num_slots));
}

// What is lacking is fed in this round, and paid for by it.
std::vector<PlanSlot> AtOnce(std::span<const PlanSlot> slots) {
  std::vector<PlanSlot> at_once(slots.begin(), slots.end());
  for (PlanSlot& slot : at_once) slot.catch_up_rounds = 1;
  return at_once;
}

// What is fed of slots that lag more than one that drafted in the last round.
double CatchUpSeconds(const DraftPlan& plan, std::span<const PlanSlot> slots,
                      const RoundCosts& costs) {
  double seconds = 0;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (plan.lengths[i] == 0 || slots[i].fixed.has_value() ||
        slots[i].lack <= kRunningLack + kSlack) {
      continue;
    }
    seconds += costs.pass.Seconds(slots[i].lack) - costs.pass.Seconds(kRunningLack);
  }
  return seconds;
}

// Seconds by which a round is shorter than plain ones would be for its tokens.
double Gain(const RoundValue& round, const RoundValue& plain) {
  return round.tokens / plain.rate() - round.seconds;
}

// Lets no more slots catch up than draft already, the nearest first: an investment is made in
// steps, so that what is measured on the way can end it. False: nothing to change.
bool Ramp(std::span<const PlanSlot> slots, DraftPlan* plan) {
  size_t num_running = 0;
  std::vector<uint32_t> late;
  for (uint32_t id = 0; id < slots.size(); ++id) {
    if (plan->lengths[id] == 0 || slots[id].fixed.has_value()) continue;
    if (slots[id].lack <= kRunningLack + kSlack) {
      ++num_running;
    } else {
      late.push_back(id);
    }
  }
  const size_t allowed = std::max(num_running, kFirstToCatchUp);
  if (late.size() <= allowed) return false;
  std::stable_sort(late.begin(), late.end(),
                   [&](uint32_t a, uint32_t b) { return slots[a].lack < slots[b].lack; });
  for (const uint32_t id : std::span(late).subspan(allowed)) plan->lengths[id] = 0;
  return true;
}

}  // namespace

DraftLengthController::DraftLengthController(const DraftLengthOptions& options)
    : options_(options),
      reference_gap_(kFirstReference),
      probe_gap_(kFirstGap),
      quick_probes_(kMostQuickProbes) {
  for (size_t i = 0; i < kNumMargins; ++i) catch_up_margins_[i] = Margin(size_t{1} << i);
}

void DraftLengthController::ObserveAcceptance(uint64_t serial, AcceptanceMode mode,
                                              uint32_t num_drafted, uint32_t num_accepted,
                                              AcceptanceEstimate* acceptance) {
  if (num_drafted > 0) plain_rounds_ = {};
  acceptance->Observe(num_drafted, num_accepted);
  priors_[static_cast<size_t>(mode)].Observe(num_drafted, num_accepted);
  for (std::optional<Probe>& probe : probes_) {
    if (!probe.has_value() || probe->serial != serial || num_drafted == 0) continue;
    const double worth = num_accepted * probe->seconds_per_token;
    credit_seconds_ += worth;
    if (worth >= probe->seconds && quick_probes_ > 0) {
      --quick_probes_;
      probe_gap_ = kShortestGap;
      barren_rounds_ = 0;
    } else {
      probe_gap_ = std::min(2 * probe_gap_, std::clamp(barren_rounds_ / kBarrenRoundsOfGap,
                                                       kLongestGap, kLongestBarrenGap));
    }
    probe.reset();
  }
}

std::vector<PlanSlot> DraftLengthController::MakeSlots(std::span<const DraftCandidate> candidates) {
  size_t num_gains = 0;
  for (const DraftCandidate& candidate : candidates) {
    num_gains +=
        std::min(candidate.limit, std::max(options_.max_length, candidate.fixed.value_or(0)));
  }
  gains_.clear();
  gains_.reserve(num_gains);  // the slots point into it
  std::vector<PlanSlot> slots;
  slots.reserve(candidates.size());
  for (const DraftCandidate& candidate : candidates) {
    PlanSlot slot;
    uint32_t most = std::min(candidate.limit, options_.max_length);
    if (candidate.fixed.has_value()) {
      most = std::min(candidate.limit, *candidate.fixed);
      slot.fixed = most;
    }
    const size_t begin = gains_.size();
    double gain = 1;
    for (uint32_t i = 0; i < most; ++i) {
      gain *= candidate.acceptance->Conditional(i);
      if (gain < kLeastGain && i >= kProbeLength && !candidate.fixed.has_value()) break;
      gains_.push_back(gain);
    }
    slot.gains = std::span(gains_).subspan(begin);
    slot.context = candidate.context;
    slot.lack = candidate.drafter_lack;
    slot.catch_up_rounds = std::clamp(candidate.remaining_tokens / 4.0, 1.0, kMostCatchUpRounds);
    slots.push_back(slot);
  }
  return slots;
}

RoundValue DraftLengthController::ValuePlainly(std::span<const DraftCandidate> candidates,
                                               const DraftBatch& batch, const RoundCosts& costs,
                                               double* attending_seconds) {
  double attended = batch.plain_attended;
  for (const DraftCandidate& candidate : candidates) attended += candidate.context;
  *attending_seconds = costs.attended * attended;
  const auto rows = static_cast<uint32_t>(batch.plain_rows + candidates.size());
  return {static_cast<double>(rows), costs.VerifySeconds(rows, attended)};
}

bool DraftLengthController::HasSlotsOfPlainRound(std::span<const DraftCandidate> candidates,
                                                 const DraftBatch& batch) const {
  if (!plain_rounds_[batch.cohort].has_value()) return false;
  const PlainRound& then = *plain_rounds_[batch.cohort];
  const auto is_like = [](const DraftCandidate& now, const DraftCandidate& before) {
    return now.serial == before.serial && now.fixed == before.fixed && now.limit <= before.limit &&
           now.drafter_lack >= before.drafter_lack &&
           now.remaining_tokens <= before.remaining_tokens;
  };
  return batch.prompt_rows == 0 && batch.plain_rows == then.batch.plain_rows &&
         batch.overlapped == then.batch.overlapped &&
         std::equal(candidates.begin(), candidates.end(), then.candidates.begin(),
                    then.candidates.end(), is_like);
}

bool DraftLengthController::HasCostsOfPlainRound(const DraftBatch& batch, const RoundCosts& costs,
                                                 double attending_seconds) const {
  const PlainRound& then = *plain_rounds_[batch.cohort];
  const double most_change = then.most_change * then.value.seconds;
  return attending_seconds - then.attending_seconds <= most_change &&
         // A round with drafts attends with more rows and gains more.
         (then.attending_seconds - attending_seconds) * (1 + options_.max_length) <= most_change &&
         costs.Distance(then.costs) <= then.most_change;
}

DraftPlan DraftLengthController::Plan(std::span<const DraftCandidate> candidates,
                                      const DraftBatch& batch, const RoundCosts& costs) {
  double attending_seconds = 0;
  const RoundValue plainly = ValuePlainly(candidates, batch, costs, &attending_seconds);
  std::optional<PlainRound>& plain_round = plain_rounds_[batch.cohort];
  uint32_t patience = 0;
  if (HasSlotsOfPlainRound(candidates, batch)) {
    if (HasCostsOfPlainRound(batch, costs, attending_seconds) ||
        (costs.Distance(plain_round->costs) <= kLittleChange &&
         std::exchange(plain_round->patience_left, plain_round->patience_left - 1) > 0)) {
      const std::vector<uint32_t> lengths(candidates.size());
      DraftPlan same{lengths, plainly, lengths, plainly};
      Earn(same, 0, &investments_[batch.cohort]);
      return same;
    }
    patience = std::min({2 * plain_round->patience + 1, kMostPlainPatience,
                         static_cast<uint32_t>(candidates.size()) / kSlotsOfPatience});
  }
  plain_round.reset();
  const std::vector<PlanSlot> slots = MakeSlots(candidates);
  const double least = Margin(candidates.size());
  DraftPlan plan = DraftPlanner(&costs, slots, batch).Best(least);
  const double seconds = CatchUpSeconds(plan, slots, costs);
  const double margin = catch_up_margins_[Bucket(candidates.size())];
  bool ramps = false;
  if (seconds > 0 && plan.value.rate() <= (1 + margin) * plan.plain.rate()) {
    const double drafted = plan.drafted_over_plain * (1 + least) / (1 + margin);
    DraftBatch without = batch;
    without.longest_lack = kRunningLack + kSlack;
    plan = DraftPlanner(&costs, slots, without).Best(least);
    plan.drafted_over_plain = std::max(plan.drafted_over_plain, drafted);
  } else {
    ramps = Ramp(slots, &plan);
    const double invested = CatchUpSeconds(plan, slots, costs);
    investments_[batch.cohort].seconds += invested;
    investments_[batch.cohort].left += invested;
  }
  const bool drafts = std::any_of(plan.lengths.begin(), plan.lengths.end(),
                                  [](uint32_t length) { return length > 0; });
  if (!drafts && batch.prompt_rows == 0) {
    // Passes and attending that change by less than a factor f each leave a round within f², and
    // the ratio of two rates within f⁴.
    const double change = std::log((1 + least) / std::max(plan.drafted_over_plain, 1e-9)) / 4;
    plain_round = {{candidates.begin(), candidates.end()},
                   batch,
                   costs,
                   plainly,
                   attending_seconds,
                   std::min(change, 0.5),
                   patience,
                   patience};
    for (DraftCandidate& candidate : plain_round->candidates) candidate.acceptance = nullptr;
  }
  if (batch.prompt_rows == 0) {
    const RoundValue value =
        ramps ? DraftPlanner(&costs, slots, batch).Value(plan.lengths) : plan.value;
    Earn(plan, Gain(value, plan.plain), &investments_[batch.cohort]);
  }
  return plan;
}

void DraftLengthController::Earn(const DraftPlan& plan, double gained_seconds,
                                 Investment* investment) {
  const double least = Margin(plan.lengths.size());
  double& margin = catch_up_margins_[Bucket(plan.lengths.size())];
  margin += (least - margin) / kMarginMemory;
  if (investment->seconds == 0) return;
  if (plan.lengths == plan.plain_lengths) {
    if (investment->left > investment->seconds / 2) {
      margin = std::min(2 * margin, kMostCatchUpMargin);
    }
    *investment = {};
    return;
  }
  investment->left -= gained_seconds;
  if (investment->left > 0) return;
  margin = std::max(margin / 2, least);
  *investment = {};
}

bool DraftLengthController::Spend(double seconds) {
  if (seconds > credit_seconds_) return false;
  credit_seconds_ -= seconds;
  return true;
}

bool DraftLengthController::Refer(const DraftBatch& batch, DraftPlan* plan) {
  if (batch.prompt_rows > 0) return false;
  if (plan->lengths == plan->plain_lengths) {
    rounds_since_plain_ = 0;
    reference_gap_ = std::max(reference_gap_ / 2, kFirstReference);
    return false;
  }
  if (++rounds_since_plain_ < reference_gap_) return false;
  if (plan->value.rate() > kClearGain * plan->plain.rate()) return false;
  rounds_since_plain_ = 0;
  reference_gap_ = std::min(2 * reference_gap_, kLongestReference);
  plan->lengths = plan->plain_lengths;
  plan->value = plan->plain;
  return true;
}

bool DraftLengthController::ProbeCosts(std::span<const DraftCandidate> candidates,
                                       const DraftBatch& batch, const RoundCosts& expected,
                                       DraftPlan* plan) {
  if (batch.prompt_rows > 0 || ++rounds_since_cost_look_ < cost_gap_) return false;
  rounds_since_cost_look_ = 0;
  cost_gap_ = std::min(2 * cost_gap_, kLongestCostGap);
  const std::vector<PlanSlot> at_once = AtOnce(MakeSlots(candidates));
  const RoundCosts hoped = costs_.Optimistic(kOptimism);
  const DraftPlan other = DraftPlanner(&hoped, at_once, batch).Best(0);
  if (other.lengths == plan->lengths) return false;
  const uint32_t rows = std::accumulate(other.lengths.begin(), other.lengths.end(),
                                        batch.plain_rows + static_cast<uint32_t>(at_once.size()));
  const double error =
      std::max(costs_.VerifyError(rows),
               other.value.tokens > other.plain.tokens ? costs_.PassError(1) : 0.0);
  if (error < kKnown ||
      other.value.rate() <= (1 + Margin(candidates.size())) * plan->value.rate()) {
    return false;
  }
  // Paid for as if it cost more than expected.
  const RoundValue value = DraftPlanner(&expected, at_once, batch).Value(other.lengths);
  const double seconds = value.seconds * std::exp(error);
  if (!Spend(std::max(0.0, seconds - value.tokens / plan->value.rate()))) return false;
  cost_gap_ = 1;
  plan->lengths = other.lengths;
  plan->value = value;
  return true;
}

void DraftLengthController::ProbeAcceptance(std::span<const DraftCandidate> candidates,
                                            const DraftBatch& batch, const RoundCosts& expected,
                                            DraftPlan* plan) {
  std::vector<uint32_t> idle;
  bool drafts = false;
  for (uint32_t id = 0; id < candidates.size(); ++id) {
    if (candidates[id].fixed.has_value() || candidates[id].limit == 0) continue;
    if (plan->lengths[id] == 0) idle.push_back(id);
    drafts = drafts || plan->lengths[id] > 0;
  }
  if (drafts) {
    barren_rounds_ = 0;
    quick_probes_ = kMostQuickProbes;
    probe_gap_ = std::min(probe_gap_, idle.empty() ? kFirstGap : kLongestGap);
  }
  if (idle.empty()) {
    if (drafts) rounds_since_probe_ = 0;
    return;
  }
  barren_rounds_ = std::min(barren_rounds_ + 1, kBarrenRoundsOfGap * kLongestBarrenGap);
  if (++rounds_to_quick_probe_ == kLongestGap) {
    rounds_to_quick_probe_ = 0;
    quick_probes_ = std::min(quick_probes_ + 1, kMostQuickProbes);
  }
  if (++rounds_since_probe_ < probe_gap_) return;
  // Those whose prompts are fed would wait for it too.
  if (prompt_rounds_ > 0 && prompt_rounds_ <= kPatientRounds) return;
  rounds_since_probe_ = 0;
  const std::vector<PlanSlot> slots = MakeSlots(candidates);

  // Would drafts pay at all, if these slots were right nearly always and the drafter as fast as it
  // may be? Where not, no answer could change anything.
  std::vector<double> hoped(options_.max_length);
  double gain = 1;
  for (double& value : hoped) value = gain *= kHopedAcceptance;
  std::vector<PlanSlot> hopeful(slots.begin(), slots.end());
  for (uint32_t id : idle) {
    hopeful[id].gains = std::span(hoped).first(std::min(candidates[id].limit, options_.max_length));
    hopeful[id].lack = std::min(hopeful[id].lack, kRunningLack);
  }
  RoundCosts hoped_costs = expected;
  hoped_costs.pass = costs_.Optimistic(kOptimism).pass;
  const double least = Margin(candidates.size());
  const RoundValue best = DraftPlanner(&hoped_costs, hopeful, batch).Best(least).value;
  if (best.rate() <= (1 + least) * plan->value.rate()) return;

  // The one that was not asked for longest, of those that could be paid for if nothing is accepted.
  std::stable_sort(idle.begin(), idle.end(), [&](uint32_t a, uint32_t b) {
    return candidates[a].acceptance->rounds_without_draft() >
           candidates[b].acceptance->rounds_without_draft();
  });
  const std::vector<PlanSlot> at_once = AtOnce(slots);
  const DraftPlanner planner(&expected, at_once, batch);
  for (uint32_t id : idle) {
    std::vector<uint32_t> lengths = plan->lengths;
    lengths[id] = std::min(kProbeLength, static_cast<uint32_t>(slots[id].gains.size()));
    const RoundValue value = planner.Value(lengths);
    const double seconds = std::max(0.0, value.seconds - plan->value.seconds);
    if (!Spend(seconds)) continue;
    double attending_seconds = 0;
    const double rate = batch.prompt_rows == 0
                            ? plan->value.rate()
                            : ValuePlainly(candidates, batch, expected, &attending_seconds).rate();
    probes_[batch.cohort] = Probe{candidates[id].serial, seconds, 1 / rate};
    plan->lengths = std::move(lengths);
    plan->value = value;
    return;
  }
}

void DraftLengthController::Choose(std::span<DraftCandidate> candidates, DraftBatch batch) {
  if (candidates.empty()) return;
  probes_[batch.cohort].reset();
  // A catch-up beside a prompt makes a slow round slower: it waits, but not for ever.
  prompt_rounds_ = batch.prompt_rows > 0 ? prompt_rounds_ + 1 : 0;
  if (prompt_rounds_ > 0 && prompt_rounds_ <= kPatientRounds) batch.longest_lack = kShortLack;
  costs_.Age();
  if (!costs_.measured()) {
    // The second round goes without: what drafts are compared with has to be known too.
    uint32_t left = ++unmeasured_rounds_ == 2 ? 0 : kInitialDraftTokens;
    for (DraftCandidate& candidate : candidates) {
      candidate.length = std::min(
          candidate.limit, candidate.fixed.value_or(std::min(left, options_.initial_length)));
      left -= std::min(left, candidate.length);
    }
    return;
  }
  const RoundCosts expected = costs_.Expected();
  DraftPlan plan = Plan(candidates, batch, expected);
  // A round of fixed lengths has nothing to find out, and gives nothing towards it.
  if (std::any_of(candidates.begin(), candidates.end(),
                  [](const DraftCandidate& slot) { return !slot.fixed.has_value(); })) {
    double attending_seconds = 0;
    const double decoding_seconds =
        batch.prompt_rows == 0
            ? plan.value.seconds
            : ValuePlainly(candidates, batch, expected, &attending_seconds).seconds;
    if (!std::exchange(paid_in_, true)) credit_seconds_ = kInitialCredit * decoding_seconds;
    const double budget =
        options_.probe_budget / (1 + (static_cast<double>(candidates.size()) - 1) / kSharingSlots);
    credit_seconds_ = std::min(credit_seconds_ + budget * plan.value.seconds,
                               std::max(credit_seconds_, kMostCredit * decoding_seconds));
    if (!Refer(batch, &plan) && !ProbeCosts(candidates, batch, expected, &plan)) {
      ProbeAcceptance(candidates, batch, expected, &plan);
    }
  }
  double sum = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    candidates[i].length = plan.lengths[i];
    sum += plan.lengths[i];
  }
  RoundValue plain = plan.plain;
  if (std::any_of(plan.plain_lengths.begin(), plan.plain_lengths.end(),
                  [](uint32_t length) { return length > 0; })) {  // those that are fixed
    const std::vector<PlanSlot> slots = MakeSlots(candidates);
    plain = DraftPlanner(&expected, slots, batch).Value(std::vector<uint32_t>(slots.size()));
  }
  last_round_ = {.mean_length = sum / static_cast<double>(candidates.size()),
                 .plain_seconds = plain.seconds,
                 .gain = plan.value.rate() / plain.rate()};
}

}  // namespace tandem
