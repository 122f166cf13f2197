#include "services/router/draft_length_controller.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tandem {
namespace {

// Drafts must be expected to gain this much: they are not tried for what may be noise.
constexpr double kMargin = 0.01;
// Draft tokens less likely than this to be kept are not considered.
constexpr double kLeastGain = 0.02;
// A catch-up is an investment: it is spread over the rounds that the request is likely to go on
// for (a half of what it may still emit, at two tokens a round), but not over more than these.
constexpr double kMostCatchUpRounds = 128;

constexpr uint32_t kProbeLength = 2;
constexpr uint32_t kShortestGap = 4;  // rounds
constexpr uint32_t kLongestGap = 128;
// What probes may have in hand, in rounds, at first and at most.
constexpr double kInitialCredit = 2;
constexpr double kMostCredit = 32;
// Acceptance that would have to pay before a probe is worth while.
constexpr double kHopedAcceptance = 0.95;
// Standard deviations by which an unsure cost may be lower than thought.
constexpr double kOptimism = 2;

}  // namespace

DraftLengthController::DraftLengthController(const DraftLengthOptions& options)
    : options_(options), probe_gap_(kShortestGap) {}

void DraftLengthController::ObserveAcceptance(uint64_t serial, AcceptanceMode mode,
                                              uint32_t num_drafted, uint32_t num_accepted,
                                              AcceptanceEstimate* acceptance) {
  acceptance->Observe(num_drafted, num_accepted);
  priors_[static_cast<size_t>(mode)].Observe(num_drafted, num_accepted);
  if (probed_serial_ == serial && num_drafted > 0) {
    probe_gap_ = num_accepted == num_drafted ? kShortestGap : std::min(2 * probe_gap_, kLongestGap);
    probed_serial_.reset();
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
    slot.lack = candidate.drafter_lack;
    slot.catch_up_rounds = std::clamp(candidate.remaining_tokens / 4.0, 1.0, kMostCatchUpRounds);
    slots.push_back(slot);
  }
  return slots;
}

bool DraftLengthController::Spend(double seconds) {
  if (seconds > credit_seconds_) return false;
  credit_seconds_ -= seconds;
  return true;
}

void DraftLengthController::ProbePlain(std::span<const PlanSlot> slots, const DraftBatch& batch,
                                       DraftPlan* plan) {
  // Unknown is what the verifier takes for the rows of a plain round. Would it pay if that were
  // as little as it may be?
  const uint32_t rows = batch.plain_rows + static_cast<uint32_t>(slots.size());
  const double hope = std::exp(-kOptimism * costs_.VerifyError(rows));
  if (plan->plain.tokens / (plan->plain.seconds * hope) <= plan->value.rate()) return;
  const double loss = plan->plain.seconds - plan->plain.tokens / plan->value.rate();
  if (!Spend(std::max(0.0, loss))) return;
  for (size_t i = 0; i < slots.size(); ++i) plan->lengths[i] = slots[i].fixed.value_or(0);
  plan->value = plan->plain;
}

void DraftLengthController::ProbeDraft(std::span<const DraftCandidate> candidates,
                                       std::span<const PlanSlot> slots, const DraftBatch& batch,
                                       DraftPlan* plan) {
  ++rounds_since_probe_;
  if (rounds_since_probe_ < probe_gap_) return;
  std::vector<uint32_t> idle;
  for (uint32_t id = 0; id < slots.size(); ++id) {
    if (plan->lengths[id] == 0 && !slots[id].fixed.has_value() && !slots[id].gains.empty()) {
      idle.push_back(id);
    }
  }
  if (idle.empty()) return;
  rounds_since_probe_ = 0;

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
  const double hope = std::exp(-kOptimism * costs_.PassError(1));
  const RoundValue best = DraftPlanner(&costs_, hopeful, batch, hope).Best(kMargin).value;
  if (best.rate() <= (1 + kMargin) * plan->value.rate()) return;

  // The one that was not asked for longest, of those that are paid for even if nothing is accepted.
  std::stable_sort(idle.begin(), idle.end(), [&](uint32_t a, uint32_t b) {
    return candidates[a].acceptance->rounds_without_draft() >
           candidates[b].acceptance->rounds_without_draft();
  });
  for (uint32_t id : idle) {
    std::vector<PlanSlot> at_once(slots.begin(), slots.end());
    at_once[id].catch_up_rounds = 1;
    std::vector<uint32_t> lengths = plan->lengths;
    lengths[id] = std::min<uint32_t>(kProbeLength, static_cast<uint32_t>(slots[id].gains.size()));
    const RoundValue value = DraftPlanner(&costs_, at_once, batch).Value(lengths);
    if (!Spend(std::max(0.0, value.seconds - plan->value.seconds))) continue;
    plan->lengths = std::move(lengths);
    plan->value = value;
    probed_serial_ = candidates[id].serial;
    return;
  }
}

void DraftLengthController::Choose(std::span<DraftCandidate> candidates, const DraftBatch& batch) {
  if (candidates.empty()) return;
  probed_serial_.reset();
  costs_.Age();
  if (!costs_.measured()) {
    for (DraftCandidate& candidate : candidates) {
      candidate.length =
          std::min(candidate.limit, candidate.fixed.value_or(options_.initial_length));
    }
    return;
  }
  const std::vector<PlanSlot> slots = MakeSlots(candidates);
  DraftPlan plan = DraftPlanner(&costs_, slots, batch).Best(kMargin);
  const double seconds = plan.value.seconds;
  if (!std::exchange(paid_in_, true)) credit_seconds_ = kInitialCredit * seconds;
  credit_seconds_ = std::min(credit_seconds_ + options_.probe_budget * seconds,
                             std::max(credit_seconds_, kMostCredit * seconds));
  const bool drafts = plan.value.tokens > plan.plain.tokens;
  if (drafts && batch.prompt_rows == 0) ProbePlain(slots, batch, &plan);
  if (plan.value.tokens > plan.plain.tokens || !drafts) {
    ProbeDraft(candidates, slots, batch, &plan);
  }
  for (size_t i = 0; i < candidates.size(); ++i) candidates[i].length = plan.lengths[i];
}

}  // namespace tandem
