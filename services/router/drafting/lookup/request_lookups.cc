#include "services/router/drafting/lookup/request_lookups.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace tandem {
namespace {

// Number of tokens of a draft that are expected to be accepted.
double Expected(const LookupDraft& draft) {
  return std::accumulate(draft.chances.begin(), draft.chances.end(), 0.0);
}

// The same, less what the rows of the tokens cost, in tokens of plain decoding.
double Worth(const LookupDraft& draft, const LookupLimits& limits) {
  double worth = 0;
  for (const double chance : draft.chances) worth += std::max(0.0, chance - limits.row_cost);
  return worth;
}

}  // namespace

void LookupPriors::ForgetSelf() {
  self_priors_ = {};
  ++self_version_;
  for (size_t mode = 0; mode < kNumAcceptanceModes; ++mode) {
    for (const Drafter drafter : kSelfDrafters) {
      priors_[mode][static_cast<size_t>(drafter)] = {};
      trials_[mode][static_cast<size_t>(drafter)] = {};
    }
  }
}

RequestLookups::RequestLookups(DrafterSet drafters, const NgramOptions& ngram, AcceptanceMode mode,
                               size_t prompt_len, size_t max_tokens,
                               std::vector<int32_t> prediction, LookupPriors* priors)
    : drafters_(drafters),
      ngram_(ngram),
      mode_(mode),
      prompt_len_(prompt_len),
      priors_(priors),
      self_version_(priors->self_version()) {
  if (drafters.contains(Drafter::kSuffix)) {
    suffix_.emplace(prompt_len + max_tokens);
    Use(Drafter::kSuffix);
  }
  if (drafters.contains(Drafter::kNgram)) Use(Drafter::kNgram);
  if (drafters.contains(Drafter::kRetrieval)) {
    retrieval_.emplace();
    Use(Drafter::kRetrieval);
  }
  if (drafters.contains(Drafter::kRecycling)) {
    recycling_.emplace();
    Use(Drafter::kRecycling);
  }
  for (const Drafter drafter : kSelfDrafters) {
    if (drafters.contains(drafter)) SetSelf(drafter);
  }
  if (drafters.contains(Drafter::kPrediction) && !prediction.empty()) {
    prediction_.emplace(std::move(prediction));
    Use(Drafter::kPrediction);
  }
}

void RequestLookups::Use(Drafter drafter) {
  ByClass& kinds = kinds_[static_cast<size_t>(drafter)];
  kinds.clear();
  for (size_t match_class = 0; match_class < kNumMatchClasses; ++match_class) {
    kinds.push_back({AcceptanceEstimate(&priors_->Of(mode_, drafter, match_class)),
                     TrialSchedule(&priors_->TrialsOf(mode_, drafter, match_class))});
  }
}

void RequestLookups::SetSelf(std::optional<Drafter> drafter) {
  self_.reset();
  self_version_ = priors_->self_version();
  if (!drafter.has_value()) return;
  DrafterSet others = drafters_;
  others.Remove(Drafter::kPrediction);  // few requests have one
  for (const Drafter each : kSelfDrafters) others.Remove(each);
  const bool is_alone = others.empty();
  self_.emplace(*drafter, &priors_->OfSelf(mode_, is_alone), /*has_rivals=*/!is_alone);
  Use(*drafter);
}

size_t RequestLookups::Advance(std::span<const int32_t> tokens, size_t most) {
  size_t taken = 0;
  if (suffix_.has_value()) taken += suffix_->Advance(tokens, most);
  if (prediction_.has_value()) {
    taken += prediction_->Advance(tokens.subspan(prompt_len_), most - taken);
  }
  return taken;
}

size_t RequestLookups::num_behind(std::span<const int32_t> tokens) const {
  size_t behind = 0;
  if (suffix_.has_value()) behind += tokens.size() - suffix_->size();
  if (prediction_.has_value()) behind += prediction_->num_behind(tokens.subspan(prompt_len_));
  return behind;
}

LookupDraft RequestLookups::FindLongest(std::span<const int32_t> tokens,
                                        const LookupLimits& limits) const {
  LookupDraft best;
  const auto offer = [&best](LookupDraft draft) {
    if (draft.token_ids.empty()) return;
    if (best.token_ids.empty() || draft.match_length > best.match_length) best = std::move(draft);
  };
  // The first one of equally long matches counts.
  if (prediction_.has_value()) offer(prediction_->Find(tokens.subspan(prompt_len_), limits));
  if (suffix_.has_value()) offer(suffix_->Find(tokens, limits));
  if (retrieval_.has_value()) offer(retrieval_->Find(tokens, limits));
  // The longest match of the n-grams is at most their order. What follows most often is a better
  // guess than what follows the newest of places that agree as long, but a prediction knows better.
  const bool may_be_better = best.token_ids.empty() || (best.drafter != Drafter::kPrediction &&
                                                        best.match_length <= ngram_.most_order);
  if (drafters_.contains(Drafter::kNgram) && may_be_better) {
    LookupDraft draft = FindByNgram(tokens, limits.depth, ngram_);
    if (!draft.token_ids.empty() && draft.match_length >= best.match_length) {
      best = std::move(draft);
    }
  }
  return best;
}

void RequestLookups::Rank(const LookupLimits& limits, LookupDraft* draft) const {
  const AcceptanceEstimate& estimate = EstimateOf(*draft);
  if (draft->parents.empty()) return SortByChance(estimate, draft);
  LookupDraft chain = *draft;
  chain.KeepChain();
  SortByChance(estimate, draft);
  draft->Keep(limits.nodes);
  // Only a chain that is longer than a tree may be large can give more than the best tree.
  if (chain.token_ids.size() <= limits.nodes) return;
  SortByChance(estimate, &chain);
  if (Expected(chain) > Expected(*draft)) *draft = std::move(chain);
}

std::vector<LookupDraft> RequestLookups::Find(std::span<const int32_t> tokens,
                                              const LookupLimits& limits) const {
  std::vector<LookupDraft> drafts;
  const auto offer = [&drafts](LookupDraft draft) {
    if (!draft.token_ids.empty()) drafts.push_back(std::move(draft));
  };
  offer(FindLongest(tokens, limits));
  if (recycling_.has_value()) offer(recycling_->Find(tokens, limits));
  for (LookupDraft& draft : drafts) Rank(limits, &draft);
  if (self_.has_value()) offer(self_->Find(tokens, limits));
  // The controller decides whether the best draft pays.
  std::stable_sort(drafts.begin(), drafts.end(), [&](const auto& a, const auto& b) {
    return Worth(a, limits) > Worth(b, limits);
  });
  return drafts;
}

const RequestLookups::Kind& RequestLookups::KindOf(const LookupDraft& draft) const {
  return kinds_[static_cast<size_t>(draft.drafter)][MatchClass(draft.match_length)];
}

TrialSchedule& RequestLookups::TrialsOf(const LookupDraft& draft) {
  return kinds_[static_cast<size_t>(draft.drafter)][MatchClass(draft.match_length)].trials;
}

bool RequestLookups::IsDueForTrial(const LookupDraft& draft, uint32_t num_slots) {
  return TrialsOf(draft).IsDue(num_slots);
}

void RequestLookups::OnTrial(const LookupDraft& draft, bool is_used) {
  TrialsOf(draft).OnTrial(is_used);
}

const AcceptanceEstimate& RequestLookups::EstimateOf(const LookupDraft& draft) const {
  return KindOf(draft).acceptance;
}

void RequestLookups::Observe(Drafter drafter, uint32_t match_length, uint32_t depth,
                             std::span<const JudgedPosition> judged) {
  const size_t match_class = MatchClass(match_length);
  Kind& judged_kind = kinds_[static_cast<size_t>(drafter)][match_class];
  for (ByClass& kinds : kinds_) {
    for (Kind& kind : kinds) {
      if (&kind != &judged_kind) kind.acceptance.Observe({});
    }
  }
  judged_kind.acceptance.Observe(judged);
  priors_->Of(mode_, drafter, match_class).Observe(judged);
  const auto num_accepted = static_cast<uint32_t>(
      std::count_if(judged.begin(), judged.end(), [](const auto& at) { return at.accepted >= 0; }));
  judged_kind.trials.OnJudged(2 * num_accepted >= depth);
  if (retrieval_.has_value()) {
    const bool is_own = drafter == Drafter::kRetrieval;
    retrieval_->OnRound(is_own ? depth : 0, is_own ? num_accepted : 0);
  }
}

void RequestLookups::ObserveNone() {
  for (ByClass& kinds : kinds_) {
    for (Kind& kind : kinds) kind.acceptance.Observe({});
  }
  if (retrieval_.has_value()) retrieval_->OnRound(0, 0);
}

size_t RequestLookups::memory_bytes() const {
  size_t bytes = sizeof(*this);
  if (suffix_.has_value()) bytes += suffix_->memory_bytes();
  if (prediction_.has_value()) bytes += prediction_->memory_bytes();
  if (recycling_.has_value()) bytes += recycling_->memory_bytes();
  for (const ByClass& kinds : kinds_) bytes += kinds.capacity() * sizeof(kinds[0]);
  return bytes;
}

}  // namespace tandem
