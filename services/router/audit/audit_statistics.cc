#include "services/router/audit/audit_statistics.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace tandem {
namespace {

// Returns the logarithm of the mean of exp(value).
double LogMeanExp(std::span<const double> values) {
  const double largest = *std::max_element(values.begin(), values.end());
  double sum = 0;
  for (double value : values) sum += std::exp(value - largest);
  return largest + std::log(sum / static_cast<double>(values.size()));
}

}  // namespace

void UniformityStatistic::Add(double u) {
  const auto bin = std::min(static_cast<size_t>(u * kNumBins), kNumBins - 1);
  // Each ratio grows by the bin's predictive probability, given the counts before, divided by 1/16.
  for (size_t i = 0; i < kConcentrations.size(); ++i) {
    const double weight = static_cast<double>(counts_[bin]) + kConcentrations[i];
    const double total = static_cast<double>(total_) + kNumBins * kConcentrations[i];
    log_likelihood_ratios_[i] += std::log(kNumBins * weight / total);
  }
  ++counts_[bin];
  ++total_;
}

double UniformityStatistic::log_evidence() const { return LogMeanExp(log_likelihood_ratios_); }

double UniformityStatistic::z() const {
  if (total_ == 0) return 0;
  const double expected = static_cast<double>(total_) / kNumBins;
  double chi_square = 0;
  for (uint64_t count : counts_) {
    const double difference = static_cast<double>(count) - expected;
    chi_square += difference * difference / expected;
  }
  constexpr double kDegreesOfFreedom = kNumBins - 1;
  constexpr double kVariance = 2 / (9 * kDegreesOfFreedom);
  return (std::cbrt(chi_square / kDegreesOfFreedom) - (1 - kVariance)) / std::sqrt(kVariance);
}

const std::array<DraftModeStatistic::Tilt, DraftModeStatistic::kNumTilts>&
DraftModeStatistic::Tilts() {
  static const std::array<Tilt, kNumTilts> tilts = [] {
    std::array<Tilt, kNumTilts> made;
    for (size_t i = 0; i < kNumTilts; ++i) {
      const double magnitude = std::ldexp(4.0, -static_cast<int>(i / 2));
      made[i].log_odds = i % 2 == 0 ? magnitude : -magnitude;
      made[i].growth = std::expm1(made[i].log_odds);
    }
    return made;
  }();
  return tilts;
}

void DraftModeStatistic::Add(double excess) {
  if (excess == 0) return;  // nothing was drafted, or the hit or miss was certain: every ratio is 1
  const bool hit = excess > 0;
  const double mode_prob = hit ? 1 - excess : -excess;
  sum_ += excess;
  variance_ += mode_prob * (1 - mode_prob);
  const std::array<Tilt, kNumTilts>& tilts = Tilts();
  for (size_t i = 0; i < kNumTilts; ++i) {
    const Tilt& tilt = tilts[i];
    log_likelihood_ratios_[i] += (hit ? tilt.log_odds : 0) - std::log1p(mode_prob * tilt.growth);
  }
}

double DraftModeStatistic::log_evidence() const { return LogMeanExp(log_likelihood_ratios_); }

double DraftModeStatistic::z() const { return variance_ > 0 ? sum_ / std::sqrt(variance_) : 0; }

}  // namespace tandem
