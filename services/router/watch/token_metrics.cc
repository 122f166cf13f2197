#include "services/router/watch/token_metrics.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "common/metrics/catalogue.h"

namespace tandem {
namespace {

// In the order of LiveSample::emitted.
constexpr std::pair<v1::TokenSource, const char*> kSources[] = {
    {v1::TOKEN_SOURCE_ACCEPTED, "accepted"},
    {v1::TOKEN_SOURCE_RECOVERED, "recovered"},
    {v1::TOKEN_SOURCE_BONUS, "bonus"},
    {v1::TOKEN_SOURCE_PLAIN, "plain"}};

uint64_t ValueOf(const prometheus::Counter& counter) {
  return static_cast<uint64_t>(counter.Value());
}

std::vector<uint64_t> ValuesOf(const std::vector<prometheus::Counter*>& counters) {
  std::vector<uint64_t> values;
  values.reserve(counters.size());
  for (const prometheus::Counter* counter : counters) values.push_back(ValueOf(*counter));
  return values;
}

// Counts one token at each of the first `num_tokens` positions.
void CountPositions(const std::vector<prometheus::Counter*>& counters, int num_tokens) {
  const auto num_counted = std::min(counters.size(), static_cast<size_t>(num_tokens));
  for (size_t position = 0; position < num_counted; ++position) counters[position]->Increment();
}

}  // namespace

DraftSeries::DraftSeries(MetricRegistry* registry, const std::string& draft_model,
                         uint32_t max_draft_length)
    : drafts_(registry->Counter(metrics::kDrafts, {{"draft_model", draft_model}})),
      draft_tokens_(registry->Counter(metrics::kDraftTokens, {{"draft_model", draft_model}})),
      accepted_tokens_(registry->Counter(metrics::kAcceptedTokens, {{"draft_model", draft_model}})),
      tested_tokens_(registry->Counter(metrics::kTestedTokens, {{"draft_model", draft_model}})),
      accepted_per_draft_(
          registry->Histogram(metrics::kAcceptedPerDraft, {{"draft_model", draft_model}})),
      request_acceptance_(
          registry->Histogram(metrics::kRequestAcceptance, {{"draft_model", draft_model}})) {
  for (uint32_t position = 0; position < max_draft_length; ++position) {
    const MetricLabels labels = {{"draft_model", draft_model},
                                 {"position", std::to_string(position)}};
    accepted_at_.push_back(&registry->Counter(metrics::kAcceptedAtPosition, labels));
    tested_at_.push_back(&registry->Counter(metrics::kTestedAtPosition, labels));
  }
}

void DraftSeries::OnCommitted(const CommittedRound& round) {
  drafts_.Increment();
  draft_tokens_.Increment(round.num_drafted);
  if (round.num_accepted > 0) accepted_tokens_.Increment(round.num_accepted);
  tested_tokens_.Increment(round.num_tested);
  accepted_per_draft_.Observe(round.num_accepted);
  CountPositions(accepted_at_, round.num_accepted);
  CountPositions(tested_at_, round.num_tested);
}

void DraftSeries::FillIn(LiveSample* sample) const {
  sample->drafts = ValueOf(drafts_);
  sample->drafted = ValueOf(draft_tokens_);
  sample->accepted = ValueOf(accepted_tokens_);
  sample->tested = ValueOf(tested_tokens_);
  sample->accepted_at = ValuesOf(accepted_at_);
  sample->tested_at = ValuesOf(tested_at_);
}

TokenMetrics::TokenMetrics(MetricRegistry* registry, uint32_t max_draft_length)
    : registry_(registry), max_draft_length_(max_draft_length) {
  for (const auto& [source, name] : kSources) {
    emitted_[source] = &registry->Counter(metrics::kEmittedTokens, {{"source", name}});
  }
}

DraftSeries& TokenMetrics::Drafts(const std::string& draft_model) {
  return drafts_.try_emplace(draft_model, registry_, draft_model, max_draft_length_).first->second;
}

void TokenMetrics::SetDrafter(const std::string& draft_model) {
  if (current_drafts_ != nullptr && draft_model == drafter_) return;
  drafter_ = draft_model;
  current_drafts_ = &Drafts(draft_model);
}

void TokenMetrics::OnCommitted(const CommittedRound& round) {
  if (round.emitted_last) emitted_[round.last_source]->Increment();
  if (round.num_drafted == 0) return;
  if (round.num_accepted > 0) {
    emitted_[v1::TOKEN_SOURCE_ACCEPTED]->Increment(round.num_accepted);
  }
  SetDrafter(*round.drafter);
  current_drafts_->OnCommitted(round);
}

void TokenMetrics::OnCompleted(const v1::Completion& completion) {
  const v1::SpeculationStats& stats = completion.speculation();
  if (stats.num_draft_tokens() == 0) return;
  Drafts(stats.drafter()).OnCompleted(stats.acceptance_rate());
}

void TokenMetrics::FillIn(LiveSample* sample) const {
  if (current_drafts_ != nullptr) current_drafts_->FillIn(sample);
  for (size_t i = 0; i < std::size(kSources); ++i) {
    sample->emitted[i] = ValueOf(*emitted_[kSources[i].first]);
  }
  sample->draft_model = drafter_;
}

}  // namespace tandem
