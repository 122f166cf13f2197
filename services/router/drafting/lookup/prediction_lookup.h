// The predicted output of a request, as a drafter.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_LOOKUP_PREDICTION_LOOKUP_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_LOOKUP_PREDICTION_LOOKUP_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "services/router/drafting/lookup/lookup_draft.h"
#include "services/router/drafting/lookup/match_index.h"

namespace tandem {

// A client predicts the output (SpeculationParams.prediction): the text that an edit begins with,
// or an earlier answer. The lookup follows it from its beginning. After a difference, it goes on at
// the place in the prediction that agrees longest with the end of the output.
class PredictionLookup {
 public:
  explicit PredictionLookup(std::vector<int32_t> prediction)
      : prediction_(std::move(prediction)), index_(prediction_.size()) {}

  // Takes over new tokens of the output, and tokens of the prediction into the index, at most
  // `most` of each. Returns how many it took. PRECOND: earlier calls had a prefix of `output`.
  size_t Advance(std::span<const int32_t> output, size_t most);

  // Drafts tokens after `output`. Returns a draft without tokens if no place of
  // the prediction agrees.
  LookupDraft Find(std::span<const int32_t> output, const LookupLimits& limits) const;

  // Number of tokens of the output and of the prediction that were not taken over yet.
  size_t num_behind(std::span<const int32_t> output) const {
    return output.size() - num_output_ + prediction_.size() - index_.size();
  }
  size_t memory_bytes() const {
    return prediction_.capacity() * sizeof(int32_t) + index_.memory_bytes();
  }

 private:
  const std::vector<int32_t> prediction_;
  MatchIndex index_;
  size_t num_output_ = 0;  // tokens of the output that were taken over
  // Where the output stands in the prediction. None: the output left the prediction.
  std::optional<TextMatch> following_ = TextMatch();
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_LOOKUP_PREDICTION_LOOKUP_H_
