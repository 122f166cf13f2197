// How a metric is described, once, for the process that counts it, its text form and the docs.
#ifndef TANDEM_COMMON_METRICS_METRIC_INFO_H_
#define TANDEM_COMMON_METRICS_METRIC_INFO_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tandem {

enum class MetricType : uint8_t { kCounter, kGauge, kHistogram };

struct MetricInfo {
  MetricType type;
  const char* name;    // of Prometheus: a counter's ends with _total
  const char* unit;    // of one of what is counted
  const char* labels;  // names, separated by a comma, beside those that all series have
  const char* help;    // what it counts, for the exposition too
  const char* advice;  // for the docs alone: what to do when it is unusual
  std::span<const double> buckets = {};  // upper bounds of a histogram; +Inf is added
};

// `count` bounds from `first` on, each `factor` times the one before.
template <size_t count>
constexpr std::array<double, count> ExponentialBuckets(double first, double factor) {
  std::array<double, count> bounds{};
  for (double& bound : bounds) {
    bound = first;
    first *= factor;
  }
  return bounds;
}

// `count` bounds from `first` on, `step` apart.
template <size_t count>
constexpr std::array<double, count> LinearBuckets(double first, double step) {
  std::array<double, count> bounds{};
  for (size_t i = 0; i < count; ++i) bounds[i] = first + step * static_cast<double>(i);
  return bounds;
}

}  // namespace tandem

#endif  // TANDEM_COMMON_METRICS_METRIC_INFO_H_
