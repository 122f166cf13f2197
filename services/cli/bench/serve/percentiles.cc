#include "services/cli/bench/serve/percentiles.h"

#include <algorithm>
#include <numeric>

namespace tandem::cli {

double Quantile(const std::vector<double>& sorted, double fraction) {
  const double at = fraction * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

Percentiles PercentilesOf(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  return {.p50 = Quantile(values, 0.50),
          .p95 = Quantile(values, 0.95),
          .p99 = Quantile(values, 0.99),
          .mean = std::accumulate(values.begin(), values.end(), 0.0) /
                  static_cast<double>(values.size()),
          .max = values.back(),
          .count = values.size()};
}

}  // namespace tandem::cli
