#include "services/router/watch/count_metrics.h"

#include <cstddef>
#include <string>

#include "common/metrics/catalogue.h"
#include "common/rpc/ring_transport.h"

namespace tandem {
namespace {

constexpr const char* kWorkers[kNumWorkers] = {"drafter", "verifier"};  // by Worker

// Raises a counter of Prometheus, which can only be incremented, to `count`.
void Raise(prometheus::Counter& counter, uint64_t count) {
  counter.Increment(static_cast<double>(count) - counter.Value());
}

}  // namespace

CountMetrics::CountMetrics(MetricRegistry* registry)
    : registry_(registry),
      replays_same_(registry->Counter(metrics::kAuditReplays, {{"result", "same"}})),
      replays_different_(registry->Counter(metrics::kAuditReplays, {{"result", "mismatch"}})) {
  const auto add = [&](const uint64_t& count, const MetricInfo& metric,
                       const MetricLabels& labels = {}) {
    exported_.emplace_back(&count, &registry->Counter(metric, labels));
  };
  add(counts_.preemptions, metrics::kPreemptions);
  for (size_t reason = 0; reason < kNumFallbacks; ++reason) {
    add(counts_.fallbacks.values[reason], metrics::kFallbackRounds,
        {{"reason", kFallbackNames[reason]}});
  }
  for (size_t i = 0; i < kNumWorkers; ++i) {
    const auto worker = static_cast<Worker>(i);
    const std::string name = kWorkers[i];
    add(counts_.prefix_hits[worker], metrics::kPrefixHits, {{"worker", name}});
    add(counts_.prefix_lookups[worker], metrics::kPrefixLookups, {{"worker", name}});
    add(counts_.rollbacks[worker], metrics::kRollbacks, {{"worker", name}});
    add(counts_.rolled_back_rows[worker], metrics::kRolledBackRows, {{"worker", name}});
    for (size_t change = 0; change < kNumSessionChanges; ++change) {
      add(counts_.session_changes[worker].values[change], metrics::kEpochChanges,
          {{"worker", name}, {"reason", kSessionChangeNames[change]}});
    }
    for (const v1::RingTransport transport : kRingTransports) {
      add(counts_.ring_refusals[worker][transport], metrics::kRingRefusals,
          {{"transport", RingTransportName(transport)}, {"worker", name}});
    }
  }
}

void CountMetrics::Refresh(const FleetState& state) {
  counts_ = state.counts;
  for (const auto& [count, counter] : exported_) Raise(*counter, *count);
  Raise(replays_same_, state.audit.num_replayed() - state.audit.num_mismatches());
  Raise(replays_different_, state.audit.num_mismatches());
  for (const v1::AuditDrafterStats& drafter : state.audit.drafters()) {
    prometheus::Counter*& samples = audit_samples_[drafter.name()];
    if (samples == nullptr) {
      samples = &registry_->Counter(metrics::kAuditSamples, {{"drafter", drafter.name()}});
    }
    Raise(*samples, drafter.num_samples());
  }
}

}  // namespace tandem
