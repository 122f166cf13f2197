#include "services/router/watch/count_metrics.h"

#include <cstddef>
#include <iterator>
#include <string>
#include <vector>

#include "common/metrics/catalogue.h"
#include "common/rpc/ring_transport.h"
#include "services/router/drafting/drafter_set.h"

namespace tandem {
namespace {

constexpr const char* kWorkers[kNumWorkers] = {"drafter", "verifier"};  // by Worker

// Raises a counter of Prometheus, which can only be incremented, to `count`.
void Raise(prometheus::Counter& counter, uint64_t count) {
  counter.Increment(static_cast<double>(count) - counter.Value());
}

}  // namespace

CountMetrics::CountMetrics(MetricRegistry* registry)
    : replays_same_(registry->Counter(metrics::kAuditReplays, {{"result", "same"}})),
      replays_different_(registry->Counter(metrics::kAuditReplays, {{"result", "mismatch"}})) {
  const auto add = [&](const uint64_t& count, const MetricInfo& metric,
                       const MetricLabels& labels = {}) {
    exported_.emplace_back(&count, &registry->Counter(metric, labels));
  };
  add(counts_.preemptions, metrics::kPreemptions);
  // Rates need the zeros before the first samples.
  std::vector<std::string> pots(std::begin(kDrafterNames), std::end(kDrafterNames));
  pots.emplace_back("none");
  for (const std::string& pot : pots) {
    audit_samples_[pot] = &registry->Counter(metrics::kAuditSamples, {{"drafter", pot}});
  }
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
    Raise(*audit_samples_.at(drafter.name()), drafter.num_samples());
  }
}

}  // namespace tandem
