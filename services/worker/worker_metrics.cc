#include "services/worker/worker_metrics.h"

#include "common/metrics/catalogue.h"
#include "common/rpc/ring_transport.h"

namespace tandem {

WorkerMetrics::WorkerMetrics(const std::string& worker, const std::string& version,
                             ModelShelf* models)
    : models_(models),
      worker_(worker),
      registry_(worker, version, {{"model", models->first().Describe().model()}}),
      used_pages_(registry_.Gauge(metrics::kKvPages, {{"worker", worker}, {"state", "used"}})),
      cached_pages_(registry_.Gauge(metrics::kKvPages, {{"worker", worker}, {"state", "cached"}})),
      free_pages_(registry_.Gauge(metrics::kKvPages, {{"worker", worker}, {"state", "free"}})),
      open_slots_(registry_.Gauge(metrics::kWorkerSlots, {{"worker", worker}, {"state", "open"}})),
      free_slots_(registry_.Gauge(metrics::kWorkerSlots, {{"worker", worker}, {"state", "free"}})),
      sessions_(registry_.Gauge(metrics::kWorkerSessions, {{"worker", worker}})),
      loaded_models_(registry_.Gauge(metrics::kWorkerModels, {{"worker", worker}})),
      batches_{&registry_.Counter(metrics::kWorkerBatches, {{"worker", worker}})},
      compute_seconds_{&registry_.Counter(metrics::kWorkerCompute, {{"worker", worker}})} {
  if (worker == kDrafter) {
    right_guesses_.counter = &registry_.Counter(metrics::kDraftGuesses, {{"outcome", "right"}});
    wrong_guesses_.counter = &registry_.Counter(metrics::kDraftGuesses, {{"outcome", "wrong"}});
  }
  // A rate needs the zero before the first event.
  for (const auto transport :
       {v1::RING_TRANSPORT_CUDA_IPC, v1::RING_TRANSPORT_SHM, v1::RING_TRANSPORT_INLINE}) {
    const std::string name = RingTransportName(transport);
    if (worker == kDrafter) {
      ring_bytes_[transport].counter =
          &registry_.Counter(metrics::kRingBytes, {{"transport", name}});
    } else {
      for (size_t error = 0; error < kNumRingErrors; ++error) {
        const auto reason = static_cast<RingError>(error);
        ring_errors_[{transport, reason}].counter = &RingErrors(transport, reason);
      }
    }
  }
  Refresh();
}

prometheus::Counter& WorkerMetrics::RingErrors(v1::RingTransport transport, RingError reason) {
  return registry_.Counter(metrics::kRingErrors,
                           {{"transport", RingTransportName(transport)},
                            {"reason", kRingErrorNames[static_cast<size_t>(reason)]}});
}

void WorkerMetrics::Refresh() {
  const ModelShelf::Totals totals = models_->Sum();
  used_pages_.Set(static_cast<double>(totals.num_pages - totals.num_free_pages));
  cached_pages_.Set(static_cast<double>(totals.num_cached_pages));
  free_pages_.Set(static_cast<double>(totals.num_free_pages - totals.num_cached_pages));
  open_slots_.Set(static_cast<double>(totals.num_open_slots));
  free_slots_.Set(static_cast<double>(totals.num_slots - totals.num_open_slots));

  const WorkerStats& now = totals.stats;
  sessions_.Set(now.num_sessions);
  loaded_models_.Set(static_cast<double>(totals.num_models));
  batches_.Set(static_cast<double>(now.num_batches));
  compute_seconds_.Set(now.compute_seconds);
  if (worker_ == kDrafter) {
    right_guesses_.Set(static_cast<double>(now.num_guessed_right));
    wrong_guesses_.Set(static_cast<double>(now.num_guessed - now.num_guessed_right));
  }
  for (const auto& [transport, bytes] : now.ring_bytes) {
    ring_bytes_[transport].Set(static_cast<double>(bytes));
  }
  for (const auto& [kind, count] : now.ring_errors) {
    Total& total = ring_errors_[kind];
    // A router that names a ring although none was created causes an error without a transport.
    if (total.counter == nullptr) total.counter = &RingErrors(kind.first, kind.second);
    total.Set(static_cast<double>(count));
  }
}

}  // namespace tandem
