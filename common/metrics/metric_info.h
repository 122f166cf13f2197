// The description of a metric, for the process that counts it, for the text format, and for the
// docs.
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
  const char* name;    // Prometheus name; the name of a counter ends with _total
  const char* unit;    // unit of the value
  const char* labels;  // names, separated by commas, without those that all series have
  const char* help;    // what the metric counts; part of the text format too
  const char* advice;  // what to do about an unusual value; shown in the docs only
  std::span<const double> buckets = {};  // upper bounds of a histogram; +Inf is added
};

// Makes `count` bounds that begin with `first`. Each is `factor` times the bound before it.
template <size_t count>
constexpr std::array<double, count> ExponentialBuckets(double first, double factor) {
  std::array<double, count> bounds{};
  for (double& bound : bounds) {
    bound = first;
    first *= factor;
  }
  return bounds;
}

// Makes `count` bounds that begin with `first` and are `step` apart.
template <size_t count>
constexpr std::array<double, count> LinearBuckets(double first, double step) {
  std::array<double, count> bounds{};
  for (size_t i = 0; i < count; ++i) bounds[i] = first + step * static_cast<double>(i);
  return bounds;
}

}  // namespace tandem

#endif  // TANDEM_COMMON_METRICS_METRIC_INFO_H_
