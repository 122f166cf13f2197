#include "services/router/watch/request_metrics.h"

#include <string>

#include "common/metrics/catalogue.h"

namespace tandem {
namespace {

// The name of the status that gRPC uses: OK, RESOURCE_EXHAUSTED.
std::string StatusName(absl::StatusCode code) { return absl::StatusCodeToString(code); }

}  // namespace

RequestMetrics::RequestMetrics(MetricRegistry* registry)
    : registry_(registry),
      queue_wait_(registry->Histogram(metrics::kQueueWait)),
      first_token_(registry->Histogram(metrics::kTimeToFirstToken)),
      per_token_(registry->Histogram(metrics::kTimePerOutputToken)) {
  // These series exist before the first event, because a rate needs the zero before the event.
  for (const auto code : {absl::StatusCode::kOk, absl::StatusCode::kCancelled,
                          absl::StatusCode::kInvalidArgument, absl::StatusCode::kResourceExhausted,
                          absl::StatusCode::kUnavailable, absl::StatusCode::kInternal}) {
    finished_[code] = &registry->Counter(metrics::kRequests, {{"status", StatusName(code)}});
  }
}

void RequestMetrics::OnAdmitted(double queue_seconds) {
  queue_wait_.Observe(queue_seconds);
  window_.Add(Latency::kQueue, queue_seconds);
}

void RequestMetrics::OnFirstToken(double seconds) {
  first_token_.Observe(seconds);
  window_.Add(Latency::kFirstToken, seconds);
}

void RequestMetrics::OnCompleted(const v1::Completion& completion) {
  const v1::Timings& timings = completion.timings();
  const int num_tokens = completion.usage().completion_tokens();
  if (num_tokens > 1) {
    const double per_token = timings.decode_seconds() / (num_tokens - 1);
    per_token_.Observe(per_token);
    window_.Add(Latency::kPerToken, per_token);
  }
  window_.Add(Latency::kTotal, timings.time_to_first_token_seconds() + timings.decode_seconds());
}

void RequestMetrics::FillIn(LiveSample* sample) {
  for (size_t kind = 0; kind < kNumLatencies; ++kind) {
    sample->latencies[kind] = window_.Quantiles(static_cast<Latency>(kind));
  }
  window_.Advance();
}

void RequestMetrics::OnFinished(absl::StatusCode status) {
  prometheus::Counter*& counter = finished_[status];
  if (counter == nullptr) {
    counter = &registry_->Counter(metrics::kRequests, {{"status", StatusName(status)}});
  }
  counter->Increment();
}

}  // namespace tandem
