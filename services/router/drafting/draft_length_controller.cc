#include "services/router/drafting/draft_length_controller.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "common/rpc/protocol.h"
#include "services/router/drafting/draft_length.h"

namespace tandem {
namespace {

// ---------------------------------------------------------------- before costs are known

// Largest number of draft tokens in a round, over all slots, until costs are measured. Such a round
// serves to measure costs, and need not be fast.
constexpr uint32_t kInitialDraftTokens = 16;
// Number of the unmeasured round that has no drafts. Drafts are compared with plain rounds, so the
// cost of plain rounds must be measured too.
constexpr uint32_t kPlainUnmeasuredRound = 2;

// ---------------------------------------------------------------- slots

// A draft token whose chance of being kept is lower than this is not considered, because it cannot
// pay for its row.
constexpr double kSmallestGain = 0.02;
// Number of draft tokens of an acceptance probe. They are considered whatever their chances are.
constexpr uint32_t kProbeLength = 2;

// ---------------------------------------------------------------- catching up

// A slot is not late until it lacks more than kRunningLack plus this number of rows. Occasional
// plain rounds cause this much lag.
constexpr uint32_t kSlack = 3;
// Number of late slots that may start in a round in which no other slot drafts.
constexpr size_t kFirstToCatchUp = 2;
// After this many consecutive rounds with prompts, drafters catch up and are probed although
// prompts are in the batch.
constexpr uint32_t kPatientRounds = 8;
// Largest number of rows that a drafter may lack and still draft beside prompts before that.
constexpr uint32_t kShortLack = 16;

// Returns true if the slot must catch up before it drafts, because it had plain rounds. Fixed
// lengths are not chosen here and do not count.
bool IsLate(const PlanSlot& slot, uint32_t length) {
  return length > 0 && !slot.fixed.has_value() && slot.lack > kRunningLack + kSlack;
}

// Returns the seconds that the plan spends on feeding its late slots, beyond those for running
// slots.
double CatchUpSeconds(const DraftPlan& plan, std::span<const PlanSlot> slots,
                      const RoundCosts& costs) {
  double seconds = 0;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (!IsLate(slots[i], plan.lengths[i])) continue;
    seconds += costs.pass.Seconds(slots[i].lack) - costs.pass.Seconds(kRunningLack);
  }
  return seconds;
}

// Returns the tokens that all slots usually commit in the time of a plain round. 0: not known.
double PaceOf(std::span<const DraftCandidate> candidates, const DraftBatch& batch) {
  double pace = batch.plain_rows;
  for (const DraftCandidate& candidate : candidates) {
    if (candidate.pace == 0) return 0;
    pace += candidate.pace;
  }
  return pace;
}

// Limits the number of slots that catch up to the number of slots that draft already. Slots that
// lack the fewest rows go first. The investment is thus made in steps, and measurements along the
// way can end it. Returns false if the plan stays as it is.
bool LimitCatchUps(std::span<const PlanSlot> slots, DraftPlan* plan) {
  size_t num_running = 0;
  std::vector<uint32_t> late;
  for (uint32_t id = 0; id < slots.size(); ++id) {
    if (plan->lengths[id] == 0 || slots[id].fixed.has_value()) continue;
    if (IsLate(slots[id], plan->lengths[id])) {
      late.push_back(id);
    } else {
      ++num_running;
    }
  }
  const size_t allowed = std::max(num_running, kFirstToCatchUp);
  if (late.size() <= allowed) return false;
  std::stable_sort(late.begin(), late.end(),
                   [&](uint32_t a, uint32_t b) { return slots[a].lack < slots[b].lack; });
  for (const uint32_t id : std::span(late).subspan(allowed)) {
    plan->lengths[id] = 0;
    plan->siblings[id] = 0;
  }
  return true;
}

// Returns the same slots, but with catch-ups that are paid for in a single round.
std::vector<PlanSlot> AtOnce(std::span<const PlanSlot> slots) {
  std::vector<PlanSlot> at_once(slots.begin(), slots.end());
  for (PlanSlot& slot : at_once) slot.catch_up_rounds = 1;
  return at_once;
}

// ---------------------------------------------------------------- probes

// Acceptance that is hoped for before a slot is probed. If drafts would not pay even with this
// acceptance, a probe is useless.
constexpr double kHopedAcceptance = 0.95;
// Siblings are tried in one of this number of rounds in which a slot could draw some and draws
// none.
constexpr uint32_t kSiblingTrialGap = 63;  // odd, so that cohorts take turns
// An uncertain cost may be lower than expected by this many standard deviations.
constexpr double kOptimism = 2;
// A cost counts as known if its relative error is below this number.
constexpr double kKnownError = 0.05;

// ---------------------------------------------------------------- plans

// Returns how many tokens plain decoding gives in the time of the cheapest row that a batch may
// grow by. Cost curves have steps, so it is looked for in stretches of doubling length.
double TokensOfCheapestRow(const RoundCosts& costs, uint32_t plain_rows) {
  const double plain = costs.VerifySeconds(plain_rows, 0);
  double cheapest = std::numeric_limits<double>::infinity();
  for (uint32_t rows = 1; rows <= 8 * plain_rows; rows *= 2) {
    const double more = costs.VerifySeconds(plain_rows + 2 * rows, 0);
    cheapest = std::min(cheapest, (more - costs.VerifySeconds(plain_rows + rows, 0)) / rows);
  }
  return cheapest / plain * plain_rows;
}

bool HasLengths(std::span<const uint32_t> lengths) {
  return std::any_of(lengths.begin(), lengths.end(), [](uint32_t length) { return length > 0; });
}

// Returns the seconds by which a round is shorter than plain rounds for the same tokens.
double GainedSeconds(const RoundValue& round, const RoundValue& plain) {
  return round.tokens / plain.rate() - round.seconds;
}

// Returns the value of the planned round. If prompts are in the batch, returns the value of a plain
// round without them, because their time is not spent on decoding.
RoundValue Decoding(std::span<const DraftCandidate> candidates, const DraftBatch& batch,
                    const RoundCosts& expected, const DraftPlan& plan) {
  return batch.prompt_rows == 0 ? plan.value : ValuePlainly(candidates, batch, expected).value;
}

}  // namespace

DraftLengthController::DraftLengthController(const DraftLengthOptions& options)
    : options_(options), plain_rounds_(options.max_length), probes_(options.probe_budget) {}

void DraftLengthController::BeginDrafter(const DraftLengthController& other) {
  priors_ = {};
  trial_priors_ = {};
  costs_.BeginDrafter(other.costs_);
  num_new_levels_ = costs_.num_new_levels();
  plain_rounds_.Forget();
  last_round_ = {};
}

void DraftLengthController::ObserveDraft(uint64_t serial, AcceptanceMode mode,
                                         std::span<const JudgedPosition> judged,
                                         uint32_t num_drafted, AcceptanceEstimate* acceptance) {
  if (num_drafted > 0) plain_rounds_.Forget();
  acceptance->Observe(judged);
  priors_[static_cast<size_t>(mode)].Observe(judged);
  const auto num_accepted =
      std::count_if(judged.begin(), judged.end(), [](const auto& at) { return at.accepted >= 0; });
  probes_.OnJudged(serial, num_drafted, static_cast<uint32_t>(num_accepted));
}

void DraftLengthController::ObserveFoundDraft(uint64_t serial, uint32_t num_drafted,
                                              uint32_t num_accepted) {
  plain_rounds_.Forget();
  probes_.OnJudged(serial, num_drafted, num_accepted);
}

void DraftLengthController::Choose(std::span<DraftCandidate> candidates, DraftBatch batch) {
  if (candidates.empty()) return;
  probes_.BeginRound(batch.cohort);
  // A catch-up beside a prompt makes a slow round slower. It therefore waits, but only for a
  // limited time.
  prompt_rounds_ = batch.prompt_rows > 0 ? prompt_rounds_ + 1 : 0;
  if (WaitsForPrompts()) batch.longest_lack = kShortLack;
  costs_.Age();
  if (costs_.num_new_levels() != num_new_levels_) {
    num_new_levels_ = costs_.num_new_levels();
    probes_.OnNewLevel();
  }
  const bool asks_drafter = std::any_of(candidates.begin(), candidates.end(),
                                        [](const auto& slot) { return !slot.has_draft; });
  if (asks_drafter ? !costs_.measured() : !costs_.verify_measured()) {
    return ChooseUnmeasured(candidates);
  }
  const RoundCosts expected = costs_.Expected();
  least_sibling_gain_ = std::max(
      kSmallestGain,
      TokensOfCheapestRow(expected, batch.plain_rows + static_cast<uint32_t>(candidates.size())));
  DraftPlan plan = Plan(candidates, batch, expected);
  // A round of fixed lengths leaves nothing to find out, and pays nothing into the credit.
  // In a hurried round, what a probe loses is more than the credit counts.
  const bool may_probe = std::any_of(candidates.begin(), candidates.end(),
                                     [](const auto& slot) { return !slot.fixed.has_value(); });
  if (may_probe && !plan.hurried) {
    Probe(candidates, batch, expected, &plan);
  }
  for (size_t i = 0; i < candidates.size(); ++i) candidates[i].length = plan.lengths[i];
  AssignSiblings(candidates, plan.siblings);
  TrySibling(candidates);
  SetLastRound(candidates, batch, expected, plan);
}

void DraftLengthController::ChooseUnmeasured(std::span<DraftCandidate> candidates) {
  uint32_t left = ++unmeasured_rounds_ == kPlainUnmeasuredRound ? 0 : kInitialDraftTokens;
  for (DraftCandidate& candidate : candidates) {
    candidate.length = std::min(candidate.limit,
                                candidate.fixed.value_or(std::min(left, options_.initial_length)));
    left -= std::min(left, candidate.length);
  }
  AssignSiblings(candidates, {});
}

void DraftLengthController::AssignSiblings(std::span<DraftCandidate> candidates,
                                           std::span<const uint32_t> counts) {
  const bool any_wanted =
      std::any_of(counts.begin(), counts.end(), [](uint32_t count) { return count > 0; }) ||
      std::any_of(candidates.begin(), candidates.end(), [](const DraftCandidate& slot) {
        return slot.fixed.has_value() && slot.max_nodes > 0;
      });
  if (!any_wanted) return;
  const std::vector<PlanSlot> slots = MakeSlots(candidates);
  for (size_t i = 0; i < candidates.size(); ++i) {
    DraftCandidate& candidate = candidates[i];
    if (candidate.max_nodes <= candidate.length) continue;
    const auto all = static_cast<uint32_t>(slots[i].siblings.size());
    const uint32_t wanted = slots[i].fixed.has_value() ? all : counts.empty() ? 0 : counts[i];
    const uint32_t count = std::min(wanted, candidate.max_nodes - candidate.length);
    candidate.num_siblings = SiblingsByPosition(slots[i].siblings, candidate.length, count);
  }
}

void DraftLengthController::TrySibling(std::span<DraftCandidate> candidates) {
  std::vector<DraftCandidate*> could;
  for (DraftCandidate& candidate : candidates) {
    if (candidate.length > 0 && candidate.max_nodes > candidate.length &&
        candidate.num_siblings.empty() && !candidate.has_draft && !candidate.fixed.has_value()) {
      could.push_back(&candidate);
    }
  }
  if (could.empty() || ++rounds_to_sibling_trial_ < kSiblingTrialGap) return;
  rounds_to_sibling_trial_ = 0;
  DraftCandidate& tried = *could[num_sibling_trials_ % could.size()];
  // Slots and widths take turns independently.
  const auto turn = num_sibling_trials_ / static_cast<uint32_t>(could.size());
  const uint32_t count = 1 + turn % kMaxSiblings;
  tried.num_siblings = {std::min(count, tried.max_nodes - tried.length)};
  ++num_sibling_trials_;
}

bool DraftLengthController::WaitsForPrompts() const {
  return prompt_rounds_ > 0 && prompt_rounds_ <= kPatientRounds;
}

std::vector<PlanSlot> DraftLengthController::MakeSlots(std::span<const DraftCandidate> candidates) {
  size_t num_gains = 0;
  for (const DraftCandidate& candidate : candidates) {
    num_gains +=
        candidate.has_draft
            ? candidate.limit
            : std::min(candidate.limit, std::max(options_.max_length, candidate.fixed.value_or(0)));
  }
  gains_.clear();
  gains_.reserve(num_gains);  // the slots point into this vector
  std::vector<PlanSlot> slots;
  slots.reserve(candidates.size());
  for (const DraftCandidate& candidate : candidates) {
    PlanSlot slot;
    uint32_t most =
        candidate.has_draft ? candidate.limit : std::min(candidate.limit, options_.max_length);
    if (candidate.fixed.has_value()) {
      most = std::min(candidate.limit, *candidate.fixed);
      slot.fixed = most;
    }
    const size_t begin = gains_.size();
    double gain = 1;
    for (uint32_t i = 0; i < most; ++i) {
      gain =
          candidate.has_draft ? candidate.chances[i] : gain * candidate.acceptance->Conditional(i);
      if (gain < kSmallestGain && i >= kProbeLength && !candidate.fixed.has_value()) break;
      gains_.push_back(gain);
    }
    slot.gains = std::span(gains_).subspan(begin);
    if (!candidate.has_draft && candidate.max_nodes > slot.fixed.value_or(0)) {
      // A tree of a fixed depth is drawn as a whole.
      slot.max_nodes = candidate.max_nodes;
      slot.siblings = RankSiblings(*candidate.acceptance, slot.gains,
                                   candidate.max_nodes - slot.fixed.value_or(0),
                                   slot.fixed.has_value() ? 0 : least_sibling_gain_);
    }
    slot.context = candidate.context;
    slot.lack = candidate.drafter_lack;
    slot.has_draft = candidate.has_draft;
    slot.catch_up_rounds = CatchUpRounds(candidate.remaining_tokens);
    slots.push_back(slot);
  }
  return slots;
}

DraftPlan DraftLengthController::Plan(std::span<const DraftCandidate> candidates,
                                      const DraftBatch& batch, const RoundCosts& costs) {
  const size_t num_slots = candidates.size();
  const PlainValue plainly = ValuePlainly(candidates, batch, costs);
  if (plain_rounds_.StillHolds(candidates, batch, costs, plainly)) {
    catch_ups_.OnPlainRound(batch.cohort, num_slots);
    const std::vector<uint32_t> lengths(num_slots);
    return {lengths, plainly.value, lengths, plainly.value};
  }
  const std::vector<PlanSlot> slots = MakeSlots(candidates);
  const double margin = DraftMargin(num_slots);
  const double pace = PaceOf(candidates, batch);
  DraftPlan plan = DraftPlanner(&costs, slots, batch).Best(margin, pace);
  bool limited = false;
  const double required = catch_ups_.RequiredGain(num_slots);
  if (CatchUpSeconds(plan, slots, costs) > 0 &&
      plan.value.rate() <= (1 + required) * plan.plain.rate()) {
    // The gain of the catch-up is too small after earlier catch-ups that did not pay.
    const double drafted = plan.drafted_over_plain * (1 + margin) / (1 + required);
    DraftBatch without = batch;
    without.longest_lack = kRunningLack + kSlack;
    plan = DraftPlanner(&costs, slots, without).Best(margin, pace);
    plan.drafted_over_plain = std::max(plan.drafted_over_plain, drafted);
  } else {
    limited = LimitCatchUps(slots, &plan);
    catch_ups_.Invest(batch.cohort, CatchUpSeconds(plan, slots, costs));
  }
  if (batch.prompt_rows > 0) return plan;
  if (plan.hurried) return plan;
  if (!HasLengths(plan.lengths)) {
    plain_rounds_.Remember(candidates, batch, costs, plainly,
                           (1 + margin) / std::max(plan.drafted_over_plain, 1e-9));
  }
  if (plan.lengths == plan.plain_lengths) {
    catch_ups_.OnPlainRound(batch.cohort, num_slots);
  } else {
    const RoundValue value =
        limited ? DraftPlanner(&costs, slots, batch).Value(plan.lengths, plan.siblings)
                : plan.value;
    catch_ups_.OnDraftedRound(batch.cohort, num_slots, GainedSeconds(value, plan.plain));
  }
  return plan;
}

void DraftLengthController::Probe(std::span<const DraftCandidate> candidates,
                                  const DraftBatch& batch, const RoundCosts& expected,
                                  DraftPlan* plan) {
  probes_.PayIn(candidates.size(), plan->value.seconds,
                Decoding(candidates, batch, expected, *plan).seconds);
  if (PlanReference(batch, plan) || PlanCostProbe(candidates, batch, expected, plan)) return;
  PlanAcceptanceProbe(candidates, batch, expected, plan);
}

bool DraftLengthController::PlanReference(const DraftBatch& batch, DraftPlan* plan) {
  if (batch.prompt_rows > 0) return false;
  if (plan->lengths == plan->plain_lengths) {
    probes_.OnPlainPlan();
    return false;
  }
  if (!probes_.ReferenceIsDue(plan->value.rate(), plan->plain.rate())) return false;
  plan->lengths = plan->plain_lengths;
  plan->value = plan->plain;
  return true;
}

bool DraftLengthController::PlanCostProbe(std::span<const DraftCandidate> candidates,
                                          const DraftBatch& batch, const RoundCosts& expected,
                                          DraftPlan* plan) {
  if (batch.prompt_rows > 0 || !probes_.CostProbeIsDue()) return false;
  const std::vector<PlanSlot> at_once = AtOnce(MakeSlots(candidates));
  const RoundCosts hoped = costs_.Optimistic(kOptimism);
  const DraftPlan other = DraftPlanner(&hoped, at_once, batch).Best(0);
  if (other.lengths == plan->lengths) return false;
  uint32_t rows = batch.plain_rows + static_cast<uint32_t>(at_once.size());
  rows = std::accumulate(other.lengths.begin(), other.lengths.end(), rows);
  rows = std::accumulate(other.siblings.begin(), other.siblings.end(), rows);
  bool asks_drafter = false;
  for (size_t i = 0; i < at_once.size(); ++i) {
    asks_drafter = asks_drafter || (!at_once[i].has_draft && other.lengths[i] > 0);
  }
  const double error = std::max(costs_.VerifyError(rows), asks_drafter ? costs_.PassError(1) : 0.0);
  if (error < kKnownError ||
      other.value.rate() <= (1 + DraftMargin(candidates.size())) * plan->value.rate()) {
    return false;
  }
  // The probe's price assumes a higher cost than expected.
  const RoundValue value =
      DraftPlanner(&expected, at_once, batch).Value(other.lengths, other.siblings);
  const double seconds = value.seconds * std::exp(error);
  if (!probes_.BuyCostProbe(std::max(0.0, seconds - value.tokens / plan->value.rate()))) {
    return false;
  }
  plan->lengths = other.lengths;
  plan->siblings = other.siblings;
  plan->value = value;
  return true;
}

bool DraftLengthController::CouldPay(std::span<const DraftCandidate> candidates,
                                     std::span<const PlanSlot> slots,
                                     std::span<const uint32_t> idle, const DraftBatch& batch,
                                     const RoundCosts& expected, const RoundValue& planned) const {
  std::vector<double> hoped(options_.max_length);
  double gain = 1;
  for (double& value : hoped) value = gain *= kHopedAcceptance;
  std::vector<PlanSlot> hopeful(slots.begin(), slots.end());
  for (const uint32_t id : idle) {
    hopeful[id].gains = std::span(hoped).first(std::min(candidates[id].limit, options_.max_length));
    hopeful[id].lack = std::min(hopeful[id].lack, kRunningLack);
  }
  RoundCosts hoped_costs = expected;
  hoped_costs.pass = costs_.Optimistic(kOptimism).pass;
  const double margin = DraftMargin(candidates.size());
  const RoundValue best = DraftPlanner(&hoped_costs, hopeful, batch).Best(margin).value;
  return best.rate() > (1 + margin) * planned.rate();
}

void DraftLengthController::PlanAcceptanceProbe(std::span<const DraftCandidate> candidates,
                                                const DraftBatch& batch, const RoundCosts& expected,
                                                DraftPlan* plan) {
  std::vector<uint32_t> idle;
  bool some_draft = false;
  for (uint32_t id = 0; id < candidates.size(); ++id) {
    if (candidates[id].fixed.has_value() || candidates[id].limit == 0) continue;
    if (plan->lengths[id] == 0) idle.push_back(id);
    some_draft = some_draft || plan->lengths[id] > 0;
  }
  if (!probes_.AcceptanceProbeIsDue(some_draft, !idle.empty(), WaitsForPrompts())) return;
  const std::vector<PlanSlot> slots = MakeSlots(candidates);
  if (!CouldPay(candidates, slots, idle, batch, expected, plan->value)) return;
  // Among the slots that the credit can pay for even if nothing is accepted, the slot with the
  // longest time without a draft goes first.
  std::stable_sort(idle.begin(), idle.end(), [&](uint32_t a, uint32_t b) {
    return candidates[a].acceptance->rounds_without_draft() >
           candidates[b].acceptance->rounds_without_draft();
  });
  const std::vector<PlanSlot> at_once = AtOnce(slots);
  const DraftPlanner planner(&expected, at_once, batch);
  const double seconds_per_token = 1 / Decoding(candidates, batch, expected, *plan).rate();
  for (const uint32_t id : idle) {
    std::vector<uint32_t> lengths = plan->lengths;
    lengths[id] = std::min(kProbeLength, static_cast<uint32_t>(slots[id].gains.size()));
    const RoundValue value = planner.Value(lengths, plan->siblings);
    const double seconds = std::max(0.0, value.seconds - plan->value.seconds);
    if (!probes_.BuyAcceptanceProbe(batch.cohort,
                                    {candidates[id].serial, seconds, seconds_per_token})) {
      continue;
    }
    plan->lengths = std::move(lengths);
    plan->value = value;
    return;
  }
}

void DraftLengthController::SetLastRound(std::span<const DraftCandidate> candidates,
                                         const DraftBatch& batch, const RoundCosts& expected,
                                         const DraftPlan& plan) {
  RoundValue plain = plan.plain;
  if (HasLengths(plan.plain_lengths)) {  // there are fixed lengths; without them the round is plain
    const std::vector<PlanSlot> slots = MakeSlots(candidates);
    plain = DraftPlanner(&expected, slots, batch).Value(std::vector<uint32_t>(slots.size()));
  }
  const double sum = std::accumulate(plan.lengths.begin(), plan.lengths.end(), 0.0);
  last_round_ = {.num_slots = static_cast<uint32_t>(candidates.size()),
                 .mean_length = sum / static_cast<double>(candidates.size()),
                 .plain_seconds = plain.seconds,
                 .gain = plan.value.rate() / plain.rate()};
}

}  // namespace tandem
