#include "services/router/watch/latency_window.h"

#include <algorithm>
#include <cmath>

namespace tandem {

void LatencyWindow::Add(Latency kind, double seconds) {
  const double place =
      std::log(std::max(seconds, kLeastSeconds) / kLeastSeconds) / std::log(kGrowth);
  const size_t bucket = std::min(static_cast<size_t>(place), kBuckets - 1);
  ++steps_[now_][static_cast<size_t>(kind)][bucket];
}

void LatencyWindow::Advance() {
  now_ = (now_ + 1) % kSteps;
  steps_[now_] = {};
}

LatencyQuantiles LatencyWindow::Quantiles(Latency kind) const {
  std::array<uint64_t, kBuckets> counts{};
  LatencyQuantiles quantiles;
  for (const auto& step : steps_) {
    const Counts& of_step = step[static_cast<size_t>(kind)];
    for (size_t i = 0; i < kBuckets; ++i) counts[i] += of_step[i];
  }
  for (const uint64_t count : counts) quantiles.num_samples += count;
  if (quantiles.num_samples == 0) return quantiles;
  // The smallest latency that at least this share of the samples does not exceed (nearest rank).
  const auto quantile = [&](double share) {
    const auto rank =
        static_cast<uint64_t>(std::ceil(share * static_cast<double>(quantiles.num_samples)));
    uint64_t seen = 0;
    size_t bucket = 0;
    while (bucket + 1 < kBuckets && (seen += counts[bucket]) < rank) ++bucket;
    return kLeastSeconds * std::pow(kGrowth, static_cast<double>(bucket) + 0.5);
  };
  quantiles.p50 = quantile(0.5);
  quantiles.p95 = quantile(0.95);
  quantiles.p99 = quantile(0.99);
  return quantiles;
}

}  // namespace tandem
