// Metrics of requests: waiting times, times of tokens, and how the calls ended.
#ifndef TANDEM_SERVICES_ROUTER_WATCH_REQUEST_METRICS_H_
#define TANDEM_SERVICES_ROUTER_WATCH_REQUEST_METRICS_H_

#include <map>

#include "absl/status/status.h"
#include "common/metrics/metric_registry.h"
#include "services/router/watch/latency_window.h"
#include "services/router/watch/live_history.h"
#include "tandem/v1/generate.pb.h"

namespace tandem {

class RequestMetrics {
 public:
  // `registry` must outlive the metrics.
  explicit RequestMetrics(MetricRegistry* registry);

  void OnAdmitted(double queue_seconds);
  void OnFirstToken(double seconds);
  void OnCompleted(const v1::Completion& completion);
  void OnFinished(absl::StatusCode status);
  // Sets the fields of the sample that are about latencies, and begins the window's next step.
  // Called once for each sample.
  void FillIn(LiveSample* sample);

 private:
  MetricRegistry* registry_;
  prometheus::Histogram& queue_wait_;
  prometheus::Histogram& first_token_;
  prometheus::Histogram& per_token_;
  std::map<absl::StatusCode, prometheus::Counter*> finished_;
  LatencyWindow window_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_WATCH_REQUEST_METRICS_H_
