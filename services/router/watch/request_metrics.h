// Metrics of requests: waiting times, times of tokens, and how the calls ended.
#ifndef TANDEM_SERVICES_ROUTER_WATCH_REQUEST_METRICS_H_
#define TANDEM_SERVICES_ROUTER_WATCH_REQUEST_METRICS_H_

#include <map>

#include "absl/status/status.h"
#include "common/metrics/metric_registry.h"
#include "tandem/v1/generate.pb.h"

namespace tandem {

class RequestMetrics {
 public:
  // `registry` must outlive the metrics.
  explicit RequestMetrics(MetricRegistry* registry);

  void OnAdmitted(double queue_seconds) { queue_wait_.Observe(queue_seconds); }
  void OnFirstToken(double seconds) { first_token_.Observe(seconds); }
  void OnCompleted(const v1::Completion& completion);
  void OnFinished(absl::StatusCode status);

 private:
  MetricRegistry* registry_;
  prometheus::Histogram& queue_wait_;
  prometheus::Histogram& first_token_;
  prometheus::Histogram& per_token_;
  std::map<absl::StatusCode, prometheus::Counter*> finished_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_WATCH_REQUEST_METRICS_H_
