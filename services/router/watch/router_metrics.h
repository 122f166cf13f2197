// The router's metrics for Prometheus. common/metrics/catalogue.h has their names and meanings.
#ifndef TANDEM_SERVICES_ROUTER_WATCH_ROUTER_METRICS_H_
#define TANDEM_SERVICES_ROUTER_WATCH_ROUTER_METRICS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/metrics/metric_registry.h"
#include "services/router/engine/engine_observer.h"
#include "services/router/fleet/fleet_state.h"
#include "services/router/watch/count_metrics.h"
#include "services/router/watch/live_history.h"
#include "services/router/watch/request_metrics.h"
#include "services/router/watch/round_metrics.h"
#include "services/router/watch/state_metrics.h"
#include "services/router/watch/token_metrics.h"

namespace tandem {

// Composes the metrics of all subjects. Everything but registry() is called on the engine's thread.
// Another thread reads the registry.
class RouterMetrics final : public EngineObserver {
 public:
  // `model` is the name in the API. Positions of draft tokens are counted up to `max_draft_length`.
  // `has_drafter` is false if no drafter is configured.
  RouterMetrics(const std::string& version, const std::string& model, uint32_t max_draft_length,
                bool has_drafter = true);

  void OnAdmitted(double queue_seconds) override { requests_.OnAdmitted(queue_seconds); }
  void OnFirstToken(double seconds) override { requests_.OnFirstToken(seconds); }
  void OnCommitted(const CommittedRound& round) override { tokens_.OnCommitted(round); }
  void OnDraftingWork(Drafter drafter, const std::string& draft_model,
                      double plain_tokens) override {
    tokens_.OnDraftingWork(drafter, draft_model, plain_tokens);
  }
  void OnRound(const RoundSeconds& seconds) override { rounds_.OnRound(seconds); }
  void OnCompleted(const v1::Completion& completion) override;
  void OnRingOpened(v1::RingTransport transport, double seconds) override {
    rounds_.OnRingOpened(transport, seconds);
  }

  // A Generate call ended. The engine may never have seen the call.
  void OnFinished(absl::StatusCode status) { requests_.OnFinished(status); }
  // Takes over counts and states. Called about once in `kRefreshSeconds`.
  void Refresh(const FleetState& state);
  static constexpr double kRefreshSeconds = 0.25;
  // Returns the sample for the live page, without its time.
  LiveSample Sample(const FleetState& state);

  const MetricRegistry& registry() const { return registry_; }

 private:
  MetricRegistry registry_;
  RequestMetrics requests_;
  RoundMetrics rounds_;
  TokenMetrics tokens_;
  CountMetrics counts_;
  StateMetrics states_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_WATCH_ROUTER_METRICS_H_
