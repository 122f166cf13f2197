// The metrics of one process, on top of prometheus-cpp.
#ifndef TANDEM_COMMON_METRICS_METRIC_REGISTRY_H_
#define TANDEM_COMMON_METRICS_METRIC_REGISTRY_H_

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>

#include <map>
#include <memory>
#include <string>

#include "common/admin/admin_server.h"
#include "common/metrics/metric_info.h"

namespace prometheus {
class Registry;
}

namespace tandem {

using MetricLabels = std::map<std::string, std::string>;

// Series are made once and kept. The code that counts holds a reference, and counting takes no lock
// except for histograms. Thread-safe.
class MetricRegistry {
 public:
  // `process` ("router", "verifier", "drafter") and `version` go into tandem_build_info. Every
  // series of Tandem gets `labels`.
  MetricRegistry(const std::string& process, const std::string& version, MetricLabels labels);
  ~MetricRegistry();

  // PRECOND: `info` has this type, and `labels` has the names that `info` states.
  prometheus::Counter& Counter(const MetricInfo& info, const MetricLabels& labels = {});
  prometheus::Gauge& Gauge(const MetricInfo& info, const MetricLabels& labels = {});
  prometheus::Histogram& Histogram(const MetricInfo& info, const MetricLabels& labels = {});

  // Returns the metrics in Prometheus' text format, version 0.0.4.
  std::string Serialize() const;

 private:
  class ProcessMetrics;  // values of the operating system, read at each scrape

  const MetricLabels labels_;
  std::shared_ptr<prometheus::Registry> registry_;
  std::unique_ptr<ProcessMetrics> process_;
};

// Returns the pages of every process: /metrics, and /healthz, which shows that the process answers.
// `registry` must outlive the server that gets these routes.
AdminRoutes MetricsRoutes(const MetricRegistry& registry);

}  // namespace tandem

#endif  // TANDEM_COMMON_METRICS_METRIC_REGISTRY_H_
