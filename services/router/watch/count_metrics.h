// The counters of Prometheus that repeat what the engines count.
#ifndef TANDEM_SERVICES_ROUTER_WATCH_COUNT_METRICS_H_
#define TANDEM_SERVICES_ROUTER_WATCH_COUNT_METRICS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/metrics/metric_registry.h"
#include "services/router/engine/counts.h"
#include "services/router/fleet/fleet_state.h"

namespace tandem {

// A new count of `Counts` gets one row in the constructor.
class CountMetrics {
 public:
  // `registry` must outlive the metrics.
  explicit CountMetrics(MetricRegistry* registry);
  CountMetrics(const CountMetrics&) = delete;
  CountMetrics& operator=(const CountMetrics&) = delete;

  void Refresh(const FleetState& state);

 private:
  Counts counts_;  // the counts of the last Refresh
  // Pairs a count in `counts_` with its metric.
  std::vector<std::pair<const uint64_t*, prometheus::Counter*>> exported_;
  prometheus::Counter& replays_same_;
  prometheus::Counter& replays_different_;
  std::map<std::string, prometheus::Counter*> audit_samples_;  // by drafter
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_WATCH_COUNT_METRICS_H_
