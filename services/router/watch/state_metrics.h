// The gauges of Prometheus: the state of the router at this moment.
#ifndef TANDEM_SERVICES_ROUTER_WATCH_STATE_METRICS_H_
#define TANDEM_SERVICES_ROUTER_WATCH_STATE_METRICS_H_

#include <map>
#include <string>

#include "common/metrics/metric_registry.h"
#include "services/router/fleet/fleet_state.h"
#include "services/router/watch/live_history.h"

namespace tandem {

class StateMetrics {
 public:
  // `registry` must outlive the metrics. If no drafter is configured, none is missed, and there is
  // no tandem_drafter_attached.
  StateMetrics(MetricRegistry* registry, bool has_drafter);

  void Refresh(const FleetState& state);
  // Sets the fields of the sample that come from `state`.
  void FillIn(const FleetState& state, LiveSample* sample) const;

 private:
  using Gauge = prometheus::Gauge;

  void RefreshDraftModels(const FleetState& state);
  void RefreshHeads(const FleetState& state);

  MetricRegistry* const registry_;
  Gauge& draft_length_;
  Gauge& baseline_step_;
  Gauge& gain_;
  Gauge& running_slots_;
  Gauge& free_slots_;
  Gauge& waiting_;
  Gauge* drafter_attached_;                     // null if no drafter is configured
  std::map<std::string, Gauge*> draft_models_;  // shares, by name
  std::map<HeadsState::Kind, Gauge*> heads_;    // pods, by heads
  Gauge& verifier_attached_;
  Gauge& ready_pods_;
  Gauge& lost_pods_;
  std::map<std::string, Gauge*> transports_;  // by name, and "none"
  Gauge& audit_failed_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_WATCH_STATE_METRICS_H_
