#include "services/router/drafting/self/self_proposals.h"

#include <algorithm>
#include <utility>

namespace tandem {

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
  net_gain_ = 0;
  asks_at_once_ = false;
  rounds_since_asked_ = 0;
  gap_ = kLongestGap;
}

void SelfProposals::OnRound(double gained, std::optional<ProposalCost> cost, bool teaches) {
  constexpr double kWeight = 0.1;
  constexpr double kWeightOfRequest = 0.02;
  ++rounds_since_asked_;
  if (!cost.has_value() && gained == 0) return;
  const ProposalCost paid = cost.value_or(0);
  net_gain_ += kWeight * (gained - paid.alone - net_gain_);
  if (teaches) prior_->net_gain += kWeightOfRequest * (gained - paid.together - prior_->net_gain);
  if (!cost.has_value()) return;
  asks_at_once_ = false;
  rounds_since_asked_ = 0;
  gap_ = net_gain_ > 0 ? kFirstGap : std::min(2 * gap_, kLongestGap);
}

}  // namespace tandem
