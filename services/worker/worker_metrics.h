// The metrics of a worker. common/metrics/catalogue.h has their names and meanings.
#ifndef TANDEM_SERVICES_WORKER_WORKER_METRICS_H_
#define TANDEM_SERVICES_WORKER_WORKER_METRICS_H_

#include <map>
#include <string>
#include <utility>

#include "common/metrics/metric_registry.h"
#include "services/worker/model_shelf.h"
#include "services/worker/worker_stats.h"

namespace tandem {

class WorkerMetrics {
 public:
  static constexpr char kDrafter[] = "drafter";
  static constexpr char kVerifier[] = "verifier";

  // `worker` is kDrafter or kVerifier. `models` must outlive the metrics.
  WorkerMetrics(const std::string& worker, const std::string& version, ModelShelf* models);

  // Sets all series from the models' counts, with a few atomic stores. The thread that computes
  // calls this function after each command.
  void Refresh();
  const MetricRegistry& registry() const { return registry_; }

 private:
  // A counter that is set to a total.
  struct Total {
    prometheus::Counter* counter = nullptr;
    double shown = 0;

    void Set(double total) {
      counter->Increment(total - shown);
      shown = total;
    }
  };
  prometheus::Counter& RingErrors(v1::RingTransport transport, RingError reason);

  const ModelShelf* models_;
  const std::string worker_;
  MetricRegistry registry_;
  prometheus::Gauge& used_pages_;
  prometheus::Gauge& cached_pages_;
  prometheus::Gauge& free_pages_;
  prometheus::Gauge& open_slots_;
  prometheus::Gauge& free_slots_;
  prometheus::Gauge& sessions_;
  prometheus::Gauge& loaded_models_;
  Total batches_;
  Total compute_seconds_;
  Total right_guesses_;  // a drafter's
  Total wrong_guesses_;
  std::map<v1::RingTransport, Total> ring_bytes_;
  std::map<std::pair<v1::RingTransport, RingError>, Total> ring_errors_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_WORKER_METRICS_H_
