#include "kernels/sampling/audit_sample.h"

#include <algorithm>
#include <cmath>

#include "kernels/sampling/transform/row_kernels.h"
#include "kernels/sampling/transform/transform.h"

namespace tandem {

AuditSample SampleForAudit(std::span<const float> target_log_probs,
                           std::span<const float> draft_log_probs, std::span<const int32_t> drafted,
                           int32_t token_id, const DrawKey& key) {
  constexpr double kLargestBelowOne = 1 - 0x1p-53;
  const auto target_prob = [&](int32_t id) {
    return std::min(1.0, std::exp(static_cast<double>(target_log_probs[id])));
  };
  AuditSample sample;
  if (target_prob(token_id) == 0) {
    sample.uniform = 1;
  } else {
    const double below = row::SumExp(target_log_probs.first(token_id), 0.0f);
    const double v = Uniform(key, DrawPurpose::kAudit);
    // p sums to 1, apart from rounding.
    sample.uniform = std::min(below + v * target_prob(token_id), kLargestBelowOne);
  }
  if (drafted.empty()) return sample;
  const int32_t mode = draft_log_probs.empty() ? drafted.front() : Argmax(draft_log_probs);
  const auto members = draft_log_probs.empty() ? drafted : std::span(&mode, 1);
  for (auto member = members.begin(); member != members.end(); ++member) {
    if (std::find(members.begin(), member, *member) != member) continue;  // the same token again
    sample.draft_mode_excess += (token_id == *member ? 1.0 : 0.0) - target_prob(*member);
  }
  // The probabilities of a set may sum to a little more than 1.
  sample.draft_mode_excess = std::max(-1.0, sample.draft_mode_excess);
  return sample;
}

}  // namespace tandem
