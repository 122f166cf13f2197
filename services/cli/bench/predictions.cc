#include "services/cli/bench/predictions.h"

#include <boost/math/distributions/students_t.hpp>
#include <cmath>

namespace tandem::cli {

double ExpectedTokensPerRound(double alpha, int gamma) {
  // The sum replaces its closed form, because the sum is also exact at alpha = 1 and near it.
  double expected = 0;
  double power = 1;
  for (int i = 0; i <= gamma; ++i, power *= alpha) expected += power;
  return expected;
}

double PredictedSpeedup(double alpha, int gamma, double cost_ratio) {
  return ExpectedTokensPerRound(alpha, gamma) / (gamma * cost_ratio + 1);
}

double OperationsFactor(double alpha, int gamma, double operations_ratio) {
  return (gamma * operations_ratio + gamma + 1) / ExpectedTokensPerRound(alpha, gamma);
}

double PredictedSpeedup(double alpha, int gamma, const RoundCosts& costs) {
  const double round_seconds = gamma * costs.draft_step + costs.verify_round + costs.round_overhead;
  return ExpectedTokensPerRound(alpha, gamma) * costs.plain_round / round_seconds;
}

RatioInterval MeanRatio(const std::vector<double>& ratios) {
  if (ratios.empty()) return {};
  const auto n = static_cast<double>(ratios.size());
  double mean = 0;
  for (double ratio : ratios) mean += std::log(ratio) / n;
  RatioInterval interval{std::exp(mean), std::exp(mean), std::exp(mean),
                         static_cast<int>(ratios.size())};
  if (ratios.size() < 2) return interval;
  double squares = 0;
  for (double ratio : ratios) squares += (std::log(ratio) - mean) * (std::log(ratio) - mean);
  const double standard_error = std::sqrt(squares / (n - 1) / n);
  const double t = boost::math::quantile(boost::math::students_t(n - 1), 0.975);
  interval.low = std::exp(mean - t * standard_error);
  interval.high = std::exp(mean + t * standard_error);
  return interval;
}

}  // namespace tandem::cli
