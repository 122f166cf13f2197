#include "bench/support/paired_ratio.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tandem::bench {
namespace {

// Returns the 0.975 quantile of Student's t by the expansion around the normal quantile (Abramowitz
// and Stegun 26.7.5), accurate to 5e-4 from 5 degrees of freedom on.
double TQuantile(double degrees) {
  constexpr double kZ = 1.959963985;
  const double z3 = std::pow(kZ, 3);
  const double z5 = std::pow(kZ, 5);
  const double z7 = std::pow(kZ, 7);
  const double z9 = std::pow(kZ, 9);
  return kZ + (z3 + kZ) / (4 * degrees) +
         (5 * z5 + 16 * z3 + 3 * kZ) / (96 * std::pow(degrees, 2)) +
         (3 * z7 + 19 * z5 + 17 * z3 - 15 * kZ) / (384 * std::pow(degrees, 3)) +
         (79 * z9 + 776 * z7 + 1482 * z5 - 1920 * z3 - 945 * kZ) / (92160 * std::pow(degrees, 4));
}

}  // namespace

Ratio PairedRatio(std::span<const double> a, std::span<const double> b) {
  const auto count = static_cast<double>(a.size());
  double mean = 0;
  for (size_t i = 0; i < a.size(); ++i) mean += std::log(a[i] / b[i]) / count;
  double squares = 0;
  for (size_t i = 0; i < a.size(); ++i) squares += std::pow(std::log(a[i] / b[i]) - mean, 2);
  const double margin = TQuantile(count - 1) * std::sqrt(squares / (count - 1) / count);
  return {std::exp(mean), std::exp(mean - margin), std::exp(mean + margin), a.size()};
}

double Median(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

}  // namespace tandem::bench
