// Metrics of rounds: how long a round and each of its stages took.
#ifndef TANDEM_SERVICES_ROUTER_WATCH_ROUND_METRICS_H_
#define TANDEM_SERVICES_ROUTER_WATCH_ROUND_METRICS_H_

#include <array>
#include <cstdint>

#include "common/metrics/metric_registry.h"
#include "services/router/engine/engine_observer.h"
#include "services/router/watch/live_history.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

class RoundMetrics {
 public:
  // `registry` must outlive the metrics.
  explicit RoundMetrics(MetricRegistry* registry);

  void OnRound(const RoundSeconds& seconds);
  void OnRingOpened(v1::RingTransport transport, double seconds);
  // Sets the fields of the sample that are about rounds.
  void FillIn(LiveSample* sample) const;

 private:
  MetricRegistry* registry_;
  prometheus::Histogram& draft_;
  prometheus::Histogram& transfer_;
  prometheus::Histogram& verify_;
  prometheus::Histogram& commit_;
  prometheus::Histogram& total_;
  uint64_t num_rounds_ = 0;
  std::array<double, 4> stage_seconds_ = {};  // sums: draft, transfer, verify, commit
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_WATCH_ROUND_METRICS_H_
