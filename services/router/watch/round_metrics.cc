#include "services/router/watch/round_metrics.h"

#include <cstddef>

#include "common/metrics/catalogue.h"
#include "common/rpc/ring_transport.h"

namespace tandem {

RoundMetrics::RoundMetrics(MetricRegistry* registry)
    : registry_(registry),
      draft_(registry->Histogram(metrics::kRoundStage, {{"stage", "draft"}})),
      transfer_(registry->Histogram(metrics::kRoundStage, {{"stage", "transfer"}})),
      verify_(registry->Histogram(metrics::kRoundStage, {{"stage", "verify"}})),
      commit_(registry->Histogram(metrics::kRoundStage, {{"stage", "commit"}})),
      total_(registry->Histogram(metrics::kRound)) {}

void RoundMetrics::OnRound(const RoundSeconds& seconds) {
  if (seconds.draft > 0) draft_.Observe(seconds.draft);
  transfer_.Observe(seconds.transfer);
  verify_.Observe(seconds.verify);
  commit_.Observe(seconds.commit);
  total_.Observe(seconds.total);
  ++num_rounds_;
  const double stages[] = {seconds.draft, seconds.transfer, seconds.verify, seconds.commit};
  for (size_t i = 0; i < stage_seconds_.size(); ++i) stage_seconds_[i] += stages[i];
}

void RoundMetrics::OnRingOpened(v1::RingTransport transport, double seconds) {
  registry_->Histogram(metrics::kRingOpen, {{"transport", RingTransportName(transport)}})
      .Observe(seconds);
}

void RoundMetrics::FillIn(LiveSample* sample) const {
  sample->rounds = num_rounds_;
  sample->stage_seconds = stage_seconds_;
}

}  // namespace tandem
