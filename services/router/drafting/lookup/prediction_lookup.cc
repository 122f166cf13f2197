#include "services/router/drafting/lookup/prediction_lookup.h"

#include <algorithm>

namespace tandem {

size_t PredictionLookup::Advance(std::span<const int32_t> output, size_t most) {
  const size_t begin = index_.size() + num_output_;
  index_.Extend(prediction_, most);
  most -= index_.size() + num_output_ - begin;
  const size_t end = std::min(output.size(), num_output_ + most);
  for (; num_output_ < end; ++num_output_) {
    if (!following_.has_value()) continue;
    if (following_->next < prediction_.size() &&
        prediction_[following_->next] == output[num_output_]) {
      ++following_->next;
      ++following_->length;
    } else {
      following_.reset();
    }
  }
  const size_t taken = index_.size() + num_output_ - begin;
  if (following_.has_value() || num_output_ < output.size() || taken == 0) return taken;
  const TextMatch found = index_.Longest(prediction_, output, index_.size());
  if (found.length > 0) following_ = found;
  return taken;
}

LookupDraft PredictionLookup::Find(std::span<const int32_t> output,
                                   const LookupLimits& limits) const {
  LookupDraft draft;
  draft.drafter = Drafter::kPrediction;
  if (num_output_ != output.size() || !following_.has_value()) return draft;
  draft.match_length = following_->length;
  const size_t begin = std::min<size_t>(following_->next, prediction_.size());
  const size_t end = std::min(prediction_.size(), begin + limits.depth);
  draft.token_ids.assign(prediction_.begin() + static_cast<ptrdiff_t>(begin),
                         prediction_.begin() + static_cast<ptrdiff_t>(end));
  return draft;
}

}  // namespace tandem
