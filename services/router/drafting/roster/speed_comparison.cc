#include "services/router/drafting/roster/speed_comparison.h"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>

namespace tandem {

void LogSample::Add(double value) {
  ++count_;
  const double before = value - mean_;
  mean_ += before / static_cast<double>(count_);
  squares_ += before * (value - mean_);
}

LogSample& LogSample::operator+=(const LogSample& other) {
  if (other.count_ == 0) return *this;
  const auto own = static_cast<double>(count_);
  const auto more = static_cast<double>(other.count_);
  const double distance = other.mean_ - mean_;
  squares_ += other.squares_ + distance * distance * own * more / (own + more);
  mean_ += distance * more / (own + more);
  count_ += other.count_;
  return *this;
}

void SpeedComparison::Add(DraftArm arm, double seconds_per_token) {
  if (arm == DraftArm::kNone || !(seconds_per_token > 0)) return;
  samples_[Index(arm)].Add(std::log(seconds_per_token));
}

SpeedComparison& SpeedComparison::operator+=(const SpeedComparison& other) {
  for (size_t i = 0; i < samples_.size(); ++i) samples_[i] += other.samples_[i];
  return *this;
}

std::optional<SpeedRatio> SpeedComparison::Ratio() const {
  const LogSample& serving = samples_[Index(DraftArm::kServing)];
  const LogSample& canary = samples_[Index(DraftArm::kCanary)];
  if (std::min(serving.count(), canary.count()) < kLeastRequests) return std::nullopt;
  const double a = serving.variance() / static_cast<double>(serving.count());
  const double b = canary.variance() / static_cast<double>(canary.count());
  const double logarithm = serving.mean() - canary.mean();
  double half_width = 0;
  if (a + b > 0) {
    // Welch 1947, with the degrees of freedom of Satterthwaite.
    const double degrees = (a + b) * (a + b) /
                           (a * a / static_cast<double>(serving.count() - 1) +
                            b * b / static_cast<double>(canary.count() - 1));
    half_width = boost::math::quantile(boost::math::students_t(degrees), 0.975) * std::sqrt(a + b);
  }
  return SpeedRatio{std::exp(logarithm), std::exp(logarithm - half_width),
                    std::exp(logarithm + half_width)};
}

}  // namespace tandem
