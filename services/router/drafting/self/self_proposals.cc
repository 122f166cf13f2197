#include "services/router/drafting/self/self_proposals.h"

#include <algorithm>
#include <utility>

namespace tandem {

SelfProposals::SelfProposals(Drafter drafter, SelfPrior* prior, bool has_rivals)
    : drafter_(drafter), prior_(prior), has_rivals_(has_rivals) {
  asks_at_once_ = !has_rivals || prior->AsksAtOnce();
  for (size_t i = 0; i < kNumAskingPlaces; ++i) {
    schedules_[i].net_gain = prior->net_gain[i];
    if (!asks_at_once_) schedules_[i].gap = kLongestGap;
  }
}

bool SelfProposals::IsWanted(AskingPlace place, uint32_t num_slots) const {
  const Schedule& schedule = schedules_[static_cast<size_t>(place)];
  if (schedule.net_gain > 0) return true;
  const bool is_due = asks_at_once_ || schedule.rounds_since_asked >= schedule.gap * num_slots;
  return is_due && (!has_rivals_ || prior_->budget.CanAsk());
}

void SelfProposals::OnProposal(size_t length, LookupDraft draft) {
  length_ = length;
  proposal_ = std::move(draft);
  proposal_.drafter = drafter_;
}

LookupDraft SelfProposals::Find(std::span<const int32_t> tokens, const LookupLimits& limits) const {
  LookupDraft draft;
  draft.drafter = drafter_;
  if (proposal_.token_ids.empty() || tokens.size() != length_) return draft;
  draft = proposal_;
  draft.match_length = 1;
  draft.Limit(limits);
  SortByBelief(prior_->calibration, &draft);
  if (limits.nodes > 0) draft.Keep(limits.nodes);
  return draft;
}

void SelfProposals::OnNoAnswer() {
  asks_at_once_ = false;
  asked_.reset();
  schedules_.fill({.net_gain = 0, .num_learned = 0, .rounds_since_asked = 0, .gap = kLongestGap});
}

void SelfProposals::OnRound(const Round& round) {
  if (asked_.has_value()) Learn(*std::exchange(asked_, std::nullopt), round.gained, round.teaches);
  prior_->budget.OnRound();
  Schedule& schedule = At(round.place);
  ++schedule.rounds_since_asked;
  if (!round.cost.has_value()) return;
  asked_ = {round.place, *round.cost, /*is_expected_to_pay=*/schedule.net_gain > 0};
  if (!asked_->is_expected_to_pay) prior_->budget.OnAsked(round.cost->alone);
  asks_at_once_ = false;
  schedule.rounds_since_asked = 0;
  schedule.gap = schedule.net_gain > 0 ? kFirstGap : std::min(2 * schedule.gap, kLongestGap);
}

void SelfProposals::Learn(const Asked& asked, double gained, bool teaches) {
  constexpr double kWeight = 0.1;
  constexpr double kWeightOfRequest = 0.02;
  // What other requests have shown counts as much as three proposals: they may have had more
  // company in their batches, or other text.
  constexpr uint32_t kProposalsOfPrior = 3;
  if (!asked.is_expected_to_pay) prior_->budget.OnGained(gained);
  Schedule& schedule = At(asked.place);
  const double weight = 1.0 / (kProposalsOfPrior + ++schedule.num_learned);
  schedule.net_gain += std::max(kWeight, weight) * (gained - asked.cost.alone - schedule.net_gain);
  if (!teaches) return;
  double& prior = prior_->net_gain[static_cast<size_t>(asked.place)];
  prior += kWeightOfRequest * (gained - asked.cost.together - prior);
}

}  // namespace tandem
