// The metrics of one process, on top of prometheus-cpp.
#ifndef TANDEM_COMMON_METRICS_METRIC_REGISTRY_H_
#define TANDEM_COMMON_METRICS_METRIC_REGISTRY_H_

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>

#include <map>
#include <memory>
#include <string>

#include "common/metrics/admin_server.h"
#include "common/metrics/metric_info.h"

namespace prometheus {
class Registry;
}

namespace tandem {

using MetricLabels = std::map<std::string, std::string>;

// Series are made once and kept: whoever counts holds a reference, and counting takes no lock but
// for histograms. Thread-safe.
class MetricRegistry {
 public:
  // `process` ("router", "verifier", "drafter") and `version` go into tandem_build_info; `labels`
  // are those of every series of Tandem's own.
  MetricRegistry(const std::string& process, const std::string& version, MetricLabels labels);
  ~MetricRegistry();

  // PRECOND: `info` is of that type, and `labels` has the names that it states.
  prometheus::Counter& Counter(const MetricInfo& info, const MetricLabels& labels = {});
  prometheus::Gauge& Gauge(const MetricInfo& info, const MetricLabels& labels = {});
  prometheus::Histogram& Histogram(const MetricInfo& info, const MetricLabels& labels = {});

  // Prometheus' text format, version 0.0.4.
  std::string Serialize() const;

 private:
  class ProcessMetrics;  // of the operating system, read when asked for

  const MetricLabels labels_;
  std::shared_ptr<prometheus::Registry> registry_;
  std::unique_ptr<ProcessMetrics> process_;
};

// What every process shows: /metrics, and /healthz, which says that it answers at all. `registry`
// must outlive the server that gets these.
AdminRoutes MetricsRoutes(const MetricRegistry& registry);

}  // namespace tandem

#endif  // TANDEM_COMMON_METRICS_METRIC_REGISTRY_H_
