#include "services/router/drafting/acceptance/model_choice.h"

namespace tandem {

std::optional<size_t> ModelChoice::Choose(std::span<const std::optional<double>> worths) {
  is_trial_ = trial_drafts_left_ > 0 && trial_rounds_left_ > 0 && worths[tried_].has_value();
  if (is_trial_) {
    --trial_rounds_left_;
    return current_ = tried_;
  }
  std::optional<size_t> best;
  double most = 0;
  for (size_t model = 0; model < worths.size(); ++model) {
    if (!worths[model].has_value()) continue;
    const double worth = *worths[model] + (model == current_ ? kLeastAdvantage : 0);
    if (best.has_value() && worth <= most) continue;
    best = model;
    most = worth;
  }
  if (best.has_value()) current_ = *best;
  return best;
}

std::optional<size_t> ModelToTry(uint32_t request, size_t num_models) {
  // The first requests measure costs.
  const bool has_turn = request % kRequestsPerModelTrial == kRequestsPerModelTrial - 1;
  if (num_models < 2 || !has_turn) return std::nullopt;
  return request / kRequestsPerModelTrial % num_models;
}

}  // namespace tandem
