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

void AddValues(const std::vector<prometheus::Counter*>& counters, std::vector<uint64_t>* sums) {
  sums->resize(std::max(sums->size(), counters.size()));
  for (size_t i = 0; i < counters.size(); ++i) (*sums)[i] += ValueOf(*counters[i]);
}

// Counts one token at each of the first `num_tokens` positions.
void CountPositions(const std::vector<prometheus::Counter*>& counters, int num_tokens) {
  const auto num_counted = std::min(counters.size(), static_cast<size_t>(num_tokens));
  for (size_t position = 0; position < num_counted; ++position) counters[position]->Increment();
}

}  // namespace

DraftSeries::DraftSeries(MetricRegistry* registry, Drafter drafter, const std::string& draft_model,
                         uint32_t max_draft_length)
    : DraftSeries(registry,
                  MetricLabels{{"drafter", DrafterName(drafter)}, {"draft_model", draft_model}},
                  max_draft_length) {}

DraftSeries::DraftSeries(MetricRegistry* registry, const MetricLabels& labels,
                         uint32_t max_draft_length)
    : drafts_(registry->Counter(metrics::kDrafts, labels)),
      draft_tokens_(registry->Counter(metrics::kDraftTokens, labels)),
      accepted_tokens_(registry->Counter(metrics::kAcceptedTokens, labels)),
      tested_tokens_(registry->Counter(metrics::kTestedTokens, labels)),
      accepted_per_draft_(registry->Histogram(metrics::kAcceptedPerDraft, labels)),
      request_acceptance_(registry->Histogram(metrics::kRequestAcceptance, labels)) {
  for (uint32_t position = 0; position < max_draft_length; ++position) {
    MetricLabels at_position = labels;
    at_position["position"] = std::to_string(position);
    accepted_at_.push_back(&registry->Counter(metrics::kAcceptedAtPosition, at_position));
    tested_at_.push_back(&registry->Counter(metrics::kTestedAtPosition, at_position));
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

void DraftSeries::AddTo(const std::pair<Drafter, std::string>& drafter, LiveSample* sample) const {
  DrafterCounts& of_drafter = sample->drafters[drafter];
  of_drafter.drafted += ValueOf(draft_tokens_);
  of_drafter.accepted += ValueOf(accepted_tokens_);
  of_drafter.tested += ValueOf(tested_tokens_);
  sample->drafts += ValueOf(drafts_);
  sample->drafted += ValueOf(draft_tokens_);
  sample->accepted += ValueOf(accepted_tokens_);
  sample->tested += ValueOf(tested_tokens_);
  AddValues(accepted_at_, &sample->accepted_at);
  AddValues(tested_at_, &sample->tested_at);
}

GainSeries::GainSeries(MetricRegistry* registry, Drafter drafter, const std::string& draft_model)
    : tokens_(registry->Counter(metrics::kDrafterTokens,
                                {{"drafter", DrafterName(drafter)}, {"draft_model", draft_model}})),
      plain_tokens_(
          registry->Counter(metrics::kDrafterPlainTokens,
                            {{"drafter", DrafterName(drafter)}, {"draft_model", draft_model}})) {}

void GainSeries::AddRound(double tokens, double plain_tokens) {
  tokens_.Increment(tokens);
  plain_tokens_.Increment(plain_tokens);
  sums_.AddRound(tokens, plain_tokens);
}

void GainSeries::AddWork(double plain_tokens) {
  plain_tokens_.Increment(plain_tokens);
  sums_.AddWork(plain_tokens);
}

TokenMetrics::TokenMetrics(MetricRegistry* registry, uint32_t max_draft_length)
    : registry_(registry), max_draft_length_(max_draft_length) {
  for (const auto& [source, name] : kSources) {
    emitted_[source] = &registry->Counter(metrics::kEmittedTokens, {{"source", name}});
  }
  // Rates need the zeros before the first drafts. Those of draft models come with their names.
  for (size_t i = 0; i < kNumDrafters; ++i) {
    const auto drafter = static_cast<Drafter>(i);
    if (drafter != Drafter::kModel) (void)Gains(drafter, "");
  }
}

DraftSeries& TokenMetrics::Drafts(Drafter drafter, const std::string& draft_model) {
  const auto key = std::make_pair(drafter, draft_model);
  return drafts_.try_emplace(key, registry_, drafter, draft_model, max_draft_length_).first->second;
}

void TokenMetrics::AddDraftModel(const std::string& draft_model) {
  (void)Drafts(Drafter::kModel, draft_model);
  (void)Gains(Drafter::kModel, draft_model);
}

GainSeries& TokenMetrics::Gains(Drafter drafter, const std::string& draft_model) {
  const auto key = std::make_pair(drafter, draft_model);
  return gains_.try_emplace(key, registry_, drafter, draft_model).first->second;
}

void TokenMetrics::OnCommitted(const CommittedRound& round) {
  if (round.emitted_last) emitted_[round.last_source]->Increment();
  if (round.num_drafted == 0) return;
  if (round.num_accepted > 0) {
    emitted_[v1::TOKEN_SOURCE_ACCEPTED]->Increment(round.num_accepted);
  }
  Drafts(round.drafter, round.draft_model).OnCommitted(round);
  if (round.plain_tokens == 0) return;
  Gains(round.drafter, round.draft_model).AddRound(round.num_emitted, round.plain_tokens);
}

void TokenMetrics::OnDraftingWork(Drafter drafter, const std::string& draft_model,
                                  double plain_tokens) {
  Gains(drafter, draft_model).AddWork(plain_tokens);
}

void TokenMetrics::OnCompleted(const v1::Completion& completion) {
  for (const v1::DrafterStats& stats : completion.speculation().drafters()) {
    const std::optional<Drafter> drafter = FindDrafter(stats.name());
    if (!drafter.has_value() || stats.num_draft_tokens() == 0) continue;
    Drafts(*drafter, stats.model())
        .OnCompleted(static_cast<double>(stats.num_accepted_tokens()) / stats.num_draft_tokens());
  }
}

void TokenMetrics::FillIn(LiveSample* sample) const {
  for (const auto& [key, series] : drafts_) {
    series.AddTo(key, sample);
    const auto gain = gains_.find(key);
    if (gain != gains_.end()) sample->drafters[key].gain = gain->second.sums();
  }
  for (size_t i = 0; i < std::size(kSources); ++i) {
    sample->emitted[i] = ValueOf(*emitted_[kSources[i].first]);
  }
}

}  // namespace tandem
