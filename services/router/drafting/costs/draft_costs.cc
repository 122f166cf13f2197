#include "services/router/drafting/costs/draft_costs.h"

#include <algorithm>
#include <vector>

namespace tandem {
namespace {

// Number of rows at which a pass is assumed to take twice the time of one row, and the standard
// deviation of the logarithm of this shape. Reading the weights takes most of the time of a small
// pass, so further rows cost little up to a large number. Measurements soon replace this
// assumption. Until then, it makes the controller try longer drafts.
constexpr double kPassDoublingRows = 24;
constexpr double kPassShapeError = 0.6;
// The same for the overhead of a message besides its passes, which hardly depends on its rows.
constexpr double kOverheadDoublingRows = 256;
constexpr double kOverheadShapeError = 0.2;
// The costs of a worker count as measured after this number of batches.
constexpr uint64_t kFewMeasurements = 3;
// Factor for the variance of a measurement with prompt rows. These rows need no logits and attend
// to fewer positions. How far such a batch is above the curve says nothing about interruptions.
constexpr double kPromptNoise = 4;

}  // namespace

double RoundCosts::Distance(const RoundCosts& other) const {
  return std::max({pass.Distance(other.pass), propose_overhead.Distance(other.propose_overhead),
                   verify.Distance(other.verify), verify_overhead.Distance(other.verify_overhead)});
}

DraftCosts::DraftCosts()
    : pass_(kPassDoublingRows, kPassShapeError),
      propose_overhead_(kOverheadDoublingRows, kOverheadShapeError),
      verify_(kPassDoublingRows, kPassShapeError),
      verify_overhead_(kOverheadDoublingRows, kOverheadShapeError) {}

void DraftCosts::BeginDrafter(const DraftCosts& other) {
  if (&other != this) *this = other;
  const DraftCosts fresh;
  pass_ = fresh.pass_;
  propose_overhead_ = fresh.propose_overhead_;
}

void DraftCosts::ObservePropose(const ProposeCost& cost) {
  if (cost.catch_up_rows == 0) return;
  uint32_t draft_tokens = 0;
  uint32_t longest = 0;
  for (uint32_t length : cost.draft_lengths) {
    draft_tokens += length;
    longest = std::max(longest, length);
  }
  std::vector<uint32_t> passes = {cost.catch_up_rows};
  for (uint32_t pass = 2; pass <= longest; ++pass) {
    passes.push_back(
        static_cast<uint32_t>(std::count_if(cost.draft_lengths.begin(), cost.draft_lengths.end(),
                                            [pass](uint32_t length) { return length >= pass; })));
  }
  if (!cost.pass_rows.empty()) passes.assign(cost.pass_rows.begin(), cost.pass_rows.end());
  // Most rows of a long catch-up need no draw, like the rows of a prompt.
  const double noise = cost.catch_up_rows > 2 * cost.draft_lengths.size() ? kPromptNoise : 1;
  const double rest = cost.compute_seconds - cost.catch_up_seconds;
  double interrupted = propose_overhead_.Observe(std::max(draft_tokens, 1u), cost.overhead_seconds);
  if (cost.catch_up_seconds <= 0 || rest <= 0 || passes.size() == 1) {
    interrupted += pass_.Observe(passes, cost.compute_seconds, noise);
  } else {
    interrupted += pass_.Observe(passes.front(), cost.catch_up_seconds, noise);
    interrupted += pass_.Observe(std::span(passes).subspan(1), rest);
  }
  if (noise == 1) interruptions_.Observe(BatchKind::kPropose, interrupted);
}

void DraftCosts::ObserveVerify(const VerifyCost& cost) {
  if (cost.rows == 0) return;
  const double noise = cost.prompt_rows > 0 ? kPromptNoise : 1;
  const double interrupted =
      verify_.Observe(cost.rows, cost.compute_seconds, noise, cost.attended) +
      verify_overhead_.Observe(cost.rows, cost.overhead_seconds, noise);
  if (noise == 1) interruptions_.Observe(BatchKind::kVerify, interrupted);
}

void DraftCosts::Age() {
  for (CostCurve* curve : {&pass_, &propose_overhead_, &verify_, &verify_overhead_}) curve->Age();
  interruptions_.Age();
}

uint64_t DraftCosts::num_new_levels() const {
  return pass_.num_new_levels() + propose_overhead_.num_new_levels() + verify_.num_new_levels() +
         verify_overhead_.num_new_levels();
}

RoundCosts DraftCosts::WithInterruptions(RoundCosts costs) const {
  costs.propose_overhead = costs.propose_overhead.Plus(interruptions_.Seconds(BatchKind::kPropose));
  costs.verify_overhead = costs.verify_overhead.Plus(interruptions_.Seconds(BatchKind::kVerify));
  return costs;
}

RoundCosts DraftCosts::Expected() const {
  return WithInterruptions({pass_.table(), propose_overhead_.table(), verify_.table(),
                            verify_.SecondsAttended(), verify_overhead_.table()});
}

RoundCosts DraftCosts::Optimistic(double deviations) const {
  return WithInterruptions({pass_.Optimistic(deviations), propose_overhead_.Optimistic(deviations),
                            verify_.Optimistic(deviations), verify_.SecondsAttended(),
                            verify_overhead_.Optimistic(deviations)});
}

bool DraftCosts::measured() const {
  return pass_.num_observations() >= kFewMeasurements && verify_measured();
}

bool DraftCosts::verify_measured() const { return verify_.num_observations() >= kFewMeasurements; }

}  // namespace tandem
