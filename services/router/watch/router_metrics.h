// What the router counts for Prometheus: names and meanings are in common/metrics/catalogue.h.
#ifndef TANDEM_SERVICES_ROUTER_WATCH_ROUTER_METRICS_H_
#define TANDEM_SERVICES_ROUTER_WATCH_ROUTER_METRICS_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/metrics/metric_registry.h"
#include "services/router/engine/counts.h"
#include "services/router/engine/engine_observer.h"
#include "services/router/fleet/fleet_state.h"
#include "services/router/watch/live_history.h"

namespace tandem {

// Takes what the engine counts and observes the engine's events, on the engine's thread; another
// thread reads the registry.
class RouterMetrics final : public EngineObserver {
 public:
  // `model`: as the API calls it. Positions of draft tokens are counted up to `max_draft_length`.
  // Where no drafter is configured none is missed: there is no tandem_drafter_attached.
  RouterMetrics(const std::string& version, const std::string& model, uint32_t max_draft_length,
                bool has_drafter = true);

  void OnAdmitted(double queue_seconds) override { queue_wait_.Observe(queue_seconds); }
  void OnFirstToken(double seconds) override { first_token_.Observe(seconds); }
  void OnCommitted(const CommittedRound& round) override;
  void OnRound(const RoundSeconds& seconds) override;
  void OnCompleted(const v1::Completion& completion) override;
  void OnRingOpened(v1::RingTransport transport, double seconds) override;

  // A Generate call ended, whether the engine ever saw it or not.
  void OnFinished(absl::StatusCode status);
  // Takes over counts and states. To be called about once in `kRefreshSeconds`.
  void Refresh(const FleetState& state);
  static constexpr double kRefreshSeconds = 0.25;
  // The same for the live page. The time is left to the caller.
  LiveSample Sample(const FleetState& state) const;

  const MetricRegistry& registry() const { return registry_; }

 private:
  using Counter = prometheus::Counter;
  using Gauge = prometheus::Gauge;
  using Histogram = prometheus::Histogram;

  // What has the drafter's name in a label.
  struct DraftSeries {
    DraftSeries(MetricRegistry* registry, const std::string& draft_model,
                uint32_t max_draft_length);

    Counter& drafts;
    Counter& draft_tokens;
    Counter& accepted_tokens;
    Counter& tested_tokens;
    Histogram& accepted_per_draft;
    Histogram& request_acceptance;
    std::vector<Counter*> accepted_at;  // by position
    std::vector<Counter*> tested_at;
  };
  DraftSeries& Drafts(const std::string& draft_model);
  void SetDrafter(const std::string& draft_model);
  // Makes a metric of a count in `counts_`.
  void Export(const uint64_t& count, const MetricInfo& metric, const MetricLabels& labels = {});
  void ExportCounts();

  MetricRegistry registry_;
  Counts counts_;                                               // as of the last Refresh
  std::vector<std::pair<const uint64_t*, Counter*>> exported_;  // from counts_
  const uint32_t max_draft_length_;
  std::map<std::string, DraftSeries> drafts_;  // by the drafter's name
  DraftSeries* current_drafts_ = nullptr;      // of the one that is attached, or was last
  std::string drafter_;                        // its name
  std::map<absl::StatusCode, Counter*> finished_;

  std::array<Counter*, v1::TokenSource_ARRAYSIZE> emitted_;
  Gauge& draft_length_;
  Gauge& baseline_step_;
  Gauge& gain_;
  Histogram& first_token_;
  Histogram& per_token_;
  Histogram& queue_wait_;
  Histogram& draft_seconds_;
  Histogram& transfer_seconds_;
  Histogram& verify_seconds_;
  Histogram& commit_seconds_;
  Histogram& round_seconds_;
  uint64_t num_rounds_ = 0;
  std::array<double, 4> stage_seconds_ = {};  // draft, transfer, verify, commit
  Gauge& running_slots_;
  Gauge& free_slots_;
  Gauge& waiting_;
  Gauge* drafter_attached_;  // or none
  Gauge& verifier_attached_;
  Gauge& ready_pods_;
  Gauge& lost_pods_;
  std::map<std::string, Gauge*> transports_;  // by name, and "none"
  Counter& replays_same_;
  Counter& replays_different_;
  Gauge& audit_failed_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_WATCH_ROUTER_METRICS_H_
