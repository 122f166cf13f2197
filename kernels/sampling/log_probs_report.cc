#include "kernels/sampling/log_probs_report.h"

#include <algorithm>
#include <cmath>

#include "kernels/sampling/transform/cuts.h"
#include "kernels/sampling/transform/row_kernels.h"

namespace tandem {

TokenLogProbs ReportLogProbs(std::span<const float> logits, int32_t token_id, int32_t num_top) {
  const float max = row::Max(logits);
  const double log_sum = static_cast<double>(max) + std::log(row::SumExp(logits, max));
  const auto log_prob = [&](float logit) {
    return static_cast<float>(static_cast<double>(logit) - log_sum);
  };

  TokenLogProbs report{.log_prob = log_prob(logits[token_id]), .top = {}};
  if (num_top <= 0) return report;
  const std::span<uint64_t> keys = LargestEntries(logits, static_cast<size_t>(num_top));
  std::sort(keys.begin(), keys.end());
  report.top.reserve(keys.size());
  for (uint64_t key : keys) {
    report.top.push_back({.token_id = row::IdOf(key), .log_prob = log_prob(row::ValueOf(key))});
  }
  return report;
}

}  // namespace tandem
