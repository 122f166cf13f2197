// What is found for one request without a draft model: in its own text, in the output that its
// client predicts, in a corpus, and in what the verifier proposes.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_LOOKUP_REQUEST_LOOKUPS_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_LOOKUP_REQUEST_LOOKUPS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "services/router/drafting/acceptance/acceptance_estimate.h"
#include "services/router/drafting/acceptance/trial_schedule.h"
#include "services/router/drafting/drafter_set.h"
#include "services/router/drafting/lookup/lookup_draft.h"
#include "services/router/drafting/lookup/ngram_lookup.h"
#include "services/router/drafting/lookup/pace.h"
#include "services/router/drafting/lookup/prediction_lookup.h"
#include "services/router/drafting/lookup/recycling_lookup.h"
#include "services/router/drafting/lookup/retrieval_lookup.h"
#include "services/router/drafting/lookup/suffix_lookup.h"
#include "services/router/drafting/self/self_proposals.h"

namespace tandem {

// What all requests of a router have shown of lookups.
class LookupPriors {
 public:
  AcceptancePrior& Of(AcceptanceMode mode, Drafter drafter, size_t match_class) {
    return priors_[static_cast<size_t>(mode)][static_cast<size_t>(drafter)][match_class];
  }
  TrialPrior& TrialsOf(AcceptanceMode mode, Drafter drafter, size_t match_class) {
    return trials_[static_cast<size_t>(mode)][static_cast<size_t>(drafter)][match_class];
  }
  // `is_alone`: of requests that may use no other drafter, except for a prediction. Proposals gain
  // more there, because no other draft could take their place.
  SelfPrior& OfSelf(AcceptanceMode mode, bool is_alone) {
    return self_priors_[static_cast<size_t>(mode)][is_alone ? 1 : 0];
  }
  // The verifiers have other heads.
  void ForgetSelf();
  uint64_t self_version() const { return self_version_; }  // grows with each ForgetSelf

 private:
  template <typename T>
  using ByKind =
      std::array<std::array<std::array<T, kNumMatchClasses>, kNumDrafters>, kNumAcceptanceModes>;
  ByKind<AcceptancePrior> priors_;
  ByKind<TrialPrior> trials_;
  std::array<std::array<SelfPrior, 2>, kNumAcceptanceModes> self_priors_;
  uint64_t self_version_ = 0;
};

// Owned by a sequence. It sees nothing but committed tokens, so that drafts stay exact
// (docs/sampling.md), and nothing of other requests but counts.
class RequestLookups {
 public:
  // `drafters`: those that the request may use. The draft model is one of them only if there is
  // one, and a drafter that lives in the verifier only if the verifier has it. `prompt_len` and
  // `max_tokens`: tokens of the prompt and of the longest output. `prediction` may be empty.
  // `priors` must outlive it.
  RequestLookups(DrafterSet drafters, const NgramOptions& ngram, AcceptanceMode mode,
                 size_t prompt_len, size_t max_tokens, std::vector<int32_t> prediction,
                 LookupPriors* priors);

  // Takes over new committed tokens, and tokens of the prediction, at most `most` of each. Returns
  // how many it took. PRECOND: earlier calls had a prefix of `tokens`.
  size_t Advance(std::span<const int32_t> tokens, size_t most);

  // Number of tokens that Advance has not taken over yet.
  size_t num_behind(std::span<const int32_t> tokens) const;

  // The target's favorites after a committed token, the most likely one first.
  void Learn(int32_t token_id, std::span<const int32_t> successors) {
    if (recycling_.has_value()) recycling_->Learn(token_id, successors);
  }

  // The request's lookup in a corpus. Null: it has none.
  RetrievalLookup* retrieval() { return retrieval_.has_value() ? &*retrieval_ : nullptr; }

  Pace& pace() { return pace_; }
  const Pace& pace() const { return pace_; }

  // The verifier has another drafter of its own. None: it has none that the request may use.
  void SetSelf(std::optional<Drafter> drafter);
  // LookupPriors::self_version when the drafter was set.
  uint64_t self_version() const { return self_version_; }
  // Null: no drafter that lives in the verifier may draft for the request.
  SelfProposals* self() { return self_.has_value() ? &*self_ : nullptr; }
  const SelfProposals* self() const { return self_.has_value() ? &*self_ : nullptr; }

  // Returns the draft with the longest match, that of the recycling drafter, and that of the
  // verifier, as far as there are such drafts. The one that is expected to be worth the most comes
  // first. Each is sorted by chance, and has as many tokens as the limits allow.
  std::vector<LookupDraft> Find(std::span<const int32_t> tokens, const LookupLimits& limits) const;

  // Returns the draft with the longest match alone, not sorted.
  LookupDraft FindLongest(std::span<const int32_t> tokens, const LookupLimits& limits) const;

  // How likely the tokens of such a draft are accepted.
  const AcceptanceEstimate& EstimateOf(const LookupDraft& draft) const;
  // Something else is worth more than this draft. Returns true if the draft is to be tried
  // nevertheless (TrialSchedule). Its drafter and its class of matches have trials of their own.
  bool IsDueForTrial(const LookupDraft& draft, uint32_t num_slots = 1);
  // A draft that was due is part of the round, or is not.
  void OnTrial(const LookupDraft& draft, bool is_used);
  // A draft of `depth` tokens on the longest path was judged. Call this function, or ObserveNone,
  // once for each round of the request.
  void Observe(Drafter drafter, uint32_t match_length, uint32_t depth,
               std::span<const JudgedPosition> judged);
  // No draft that was found was judged in this round.
  void ObserveNone();

  size_t memory_bytes() const;

 private:
  // What the request has shown of drafts of one drafter whose matches have about one length.
  struct Kind {
    AcceptanceEstimate acceptance;
    TrialSchedule trials;
  };
  using ByClass = std::vector<Kind>;

  // Begins to estimate drafts of a drafter.
  void Use(Drafter drafter);
  const Kind& KindOf(const LookupDraft& draft) const;
  TrialSchedule& TrialsOf(const LookupDraft& draft);
  // Sorts a draft by chance, and cuts it to the limits.
  void Rank(const LookupLimits& limits, LookupDraft* draft) const;

  DrafterSet drafters_;
  NgramOptions ngram_;
  AcceptanceMode mode_;
  size_t prompt_len_;
  LookupPriors* priors_;
  std::optional<SuffixLookup> suffix_;
  std::optional<PredictionLookup> prediction_;
  std::optional<RetrievalLookup> retrieval_;
  std::optional<RecyclingLookup> recycling_;
  std::optional<SelfProposals> self_;
  uint64_t self_version_ = 0;
  Pace pace_;
  std::array<ByClass, kNumDrafters> kinds_;  // by class; empty: not used
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_LOOKUP_REQUEST_LOOKUPS_H_
