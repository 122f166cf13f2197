#include "services/router/watch/router_metrics.h"

#include <algorithm>
#include <utility>

#include "common/metrics/catalogue.h"
#include "common/rpc/ring_transport.h"

namespace tandem {
namespace {

constexpr std::pair<v1::TokenSource, const char*> kSources[] = {
    {v1::TOKEN_SOURCE_ACCEPTED, "accepted"},
    {v1::TOKEN_SOURCE_RECOVERED, "recovered"},
    {v1::TOKEN_SOURCE_BONUS, "bonus"},
    {v1::TOKEN_SOURCE_PLAIN, "plain"}};
constexpr const char* kWorkers[kNumWorkers] = {"drafter", "verifier"};  // by Worker
constexpr v1::RingTransport kTransports[] = {v1::RING_TRANSPORT_CUDA_IPC, v1::RING_TRANSPORT_SHM,
                                             v1::RING_TRANSPORT_INLINE};
constexpr const char* kNoTransport = "none";

// Raises a counter of Prometheus, which can only be incremented, to `count`.
void Raise(prometheus::Counter& counter, uint64_t count) {
  counter.Increment(static_cast<double>(count) - counter.Value());
}

// As gRPC writes them: OK, RESOURCE_EXHAUSTED.
std::string StatusName(absl::StatusCode code) { return absl::StatusCodeToString(code); }

MetricLabels ModelLabel(const std::string& model) { return {{"model", model}}; }

}  // namespace

RouterMetrics::DraftSeries::DraftSeries(MetricRegistry* registry, const std::string& draft_model,
                                        uint32_t max_draft_length)
    : drafts(registry->Counter(metrics::kDrafts, {{"draft_model", draft_model}})),
      draft_tokens(registry->Counter(metrics::kDraftTokens, {{"draft_model", draft_model}})),
      accepted_tokens(registry->Counter(metrics::kAcceptedTokens, {{"draft_model", draft_model}})),
      tested_tokens(registry->Counter(metrics::kTestedTokens, {{"draft_model", draft_model}})),
      accepted_per_draft(
          registry->Histogram(metrics::kAcceptedPerDraft, {{"draft_model", draft_model}})),
      request_acceptance(
          registry->Histogram(metrics::kRequestAcceptance, {{"draft_model", draft_model}})) {
  for (uint32_t position = 0; position < max_draft_length; ++position) {
    const MetricLabels labels = {{"draft_model", draft_model},
                                 {"position", std::to_string(position)}};
    accepted_at.push_back(&registry->Counter(metrics::kAcceptedAtPosition, labels));
    tested_at.push_back(&registry->Counter(metrics::kTestedAtPosition, labels));
  }
}

RouterMetrics::RouterMetrics(const std::string& version, const std::string& model,
                             uint32_t max_draft_length, bool has_drafter)
    : registry_("router", version, ModelLabel(model)),
      max_draft_length_(max_draft_length),
      draft_length_(registry_.Gauge(metrics::kDraftLength)),
      baseline_step_(registry_.Gauge(metrics::kBaselineStep)),
      gain_(registry_.Gauge(metrics::kSpeculationGain)),
      first_token_(registry_.Histogram(metrics::kTimeToFirstToken)),
      per_token_(registry_.Histogram(metrics::kTimePerOutputToken)),
      queue_wait_(registry_.Histogram(metrics::kQueueWait)),
      draft_seconds_(registry_.Histogram(metrics::kRoundStage, {{"stage", "draft"}})),
      transfer_seconds_(registry_.Histogram(metrics::kRoundStage, {{"stage", "transfer"}})),
      verify_seconds_(registry_.Histogram(metrics::kRoundStage, {{"stage", "verify"}})),
      commit_seconds_(registry_.Histogram(metrics::kRoundStage, {{"stage", "commit"}})),
      round_seconds_(registry_.Histogram(metrics::kRound)),
      running_slots_(registry_.Gauge(metrics::kSlots, {{"state", "running"}})),
      free_slots_(registry_.Gauge(metrics::kSlots, {{"state", "free"}})),
      waiting_(registry_.Gauge(metrics::kRequestsWaiting)),
      drafter_attached_(has_drafter ? &registry_.Gauge(metrics::kDrafterAttached) : nullptr),
      verifier_attached_(registry_.Gauge(metrics::kVerifierAttached)),
      ready_pods_(registry_.Gauge(metrics::kWorkerPods, {{"state", "ready"}})),
      lost_pods_(registry_.Gauge(metrics::kWorkerPods, {{"state", "lost"}})),
      replays_same_(registry_.Counter(metrics::kAuditReplays, {{"result", "same"}})),
      replays_different_(registry_.Counter(metrics::kAuditReplays, {{"result", "mismatch"}})),
      audit_failed_(registry_.Gauge(metrics::kAuditFailed)) {
  emitted_.fill(nullptr);
  for (const auto& [source, name] : kSources) {
    emitted_[source] = &registry_.Counter(metrics::kEmittedTokens, {{"source", name}});
  }
  ExportCounts();
  transports_[kNoTransport] =
      &registry_.Gauge(metrics::kRingTransport, {{"transport", kNoTransport}});
  for (const v1::RingTransport transport : kTransports) {
    const std::string name = RingTransportName(transport);
    transports_[name] = &registry_.Gauge(metrics::kRingTransport, {{"transport", name}});
  }
  // Scraped from the start, and not from the first event on: a rate needs the zero before it.
  for (const auto code : {absl::StatusCode::kOk, absl::StatusCode::kCancelled,
                          absl::StatusCode::kInvalidArgument, absl::StatusCode::kResourceExhausted,
                          absl::StatusCode::kUnavailable, absl::StatusCode::kInternal}) {
    finished_[code] = &registry_.Counter(metrics::kRequests, {{"status", StatusName(code)}});
  }
}

void RouterMetrics::Export(const uint64_t& count, const MetricInfo& metric,
                           const MetricLabels& labels) {
  exported_.emplace_back(&count, &registry_.Counter(metric, labels));
}

void RouterMetrics::ExportCounts() {
  Export(counts_.preemptions, metrics::kPreemptions);
  for (size_t reason = 0; reason < kNumFallbacks; ++reason) {
    Export(counts_.fallbacks.values[reason], metrics::kFallbackRounds,
           {{"reason", kFallbackNames[reason]}});
  }
  for (size_t i = 0; i < kNumWorkers; ++i) {
    const auto worker = static_cast<Worker>(i);
    const std::string name = kWorkers[i];
    Export(counts_.prefix_hits[worker], metrics::kPrefixHits, {{"worker", name}});
    Export(counts_.prefix_lookups[worker], metrics::kPrefixLookups, {{"worker", name}});
    Export(counts_.rollbacks[worker], metrics::kRollbacks, {{"worker", name}});
    Export(counts_.rolled_back_rows[worker], metrics::kRolledBackRows, {{"worker", name}});
    for (size_t change = 0; change < kNumSessionChanges; ++change) {
      Export(counts_.session_changes[worker].values[change], metrics::kEpochChanges,
             {{"worker", name}, {"reason", kSessionChangeNames[change]}});
    }
    for (const v1::RingTransport transport : kTransports) {
      Export(counts_.ring_refusals[worker][transport], metrics::kRingRefusals,
             {{"transport", RingTransportName(transport)}, {"worker", name}});
    }
  }
}

RouterMetrics::DraftSeries& RouterMetrics::Drafts(const std::string& draft_model) {
  return drafts_.try_emplace(draft_model, &registry_, draft_model, max_draft_length_).first->second;
}

void RouterMetrics::SetDrafter(const std::string& draft_model) {
  if (current_drafts_ != nullptr && draft_model == drafter_) return;
  drafter_ = draft_model;
  current_drafts_ = &Drafts(draft_model);
}

void RouterMetrics::OnCommitted(const CommittedRound& round) {
  if (round.emitted_last) emitted_[round.last_source]->Increment();
  if (round.num_drafted == 0) return;
  SetDrafter(*round.drafter);
  DraftSeries& series = *current_drafts_;
  if (round.num_accepted > 0) {
    emitted_[v1::TOKEN_SOURCE_ACCEPTED]->Increment(round.num_accepted);
    series.accepted_tokens.Increment(round.num_accepted);
  }
  series.drafts.Increment();
  series.draft_tokens.Increment(round.num_drafted);
  series.tested_tokens.Increment(round.num_tested);
  series.accepted_per_draft.Observe(round.num_accepted);
  const int num_positions = static_cast<int>(series.accepted_at.size());
  for (int i = 0; i < std::min(round.num_accepted, num_positions); ++i) {
    series.accepted_at[static_cast<size_t>(i)]->Increment();
  }
  for (int i = 0; i < std::min(round.num_tested, num_positions); ++i) {
    series.tested_at[static_cast<size_t>(i)]->Increment();
  }
}

void RouterMetrics::OnRound(const RoundSeconds& seconds) {
  if (seconds.draft > 0) draft_seconds_.Observe(seconds.draft);
  transfer_seconds_.Observe(seconds.transfer);
  verify_seconds_.Observe(seconds.verify);
  commit_seconds_.Observe(seconds.commit);
  round_seconds_.Observe(seconds.total);
  ++num_rounds_;
  const double stages[] = {seconds.draft, seconds.transfer, seconds.verify, seconds.commit};
  for (size_t i = 0; i < stage_seconds_.size(); ++i) stage_seconds_[i] += stages[i];
}

void RouterMetrics::OnCompleted(const v1::Completion& completion) {
  const int num_tokens = completion.usage().completion_tokens();
  if (num_tokens > 1) {
    per_token_.Observe(completion.timings().decode_seconds() / (num_tokens - 1));
  }
  if (completion.speculation().num_draft_tokens() > 0) {
    Drafts(completion.speculation().drafter())
        .request_acceptance.Observe(completion.speculation().acceptance_rate());
  }
}

void RouterMetrics::OnRingOpened(v1::RingTransport transport, double seconds) {
  registry_.Histogram(metrics::kRingOpen, {{"transport", RingTransportName(transport)}})
      .Observe(seconds);
}

void RouterMetrics::OnFinished(absl::StatusCode status) {
  Counter*& counter = finished_[status];
  if (counter == nullptr) {
    counter = &registry_.Counter(metrics::kRequests, {{"status", StatusName(status)}});
  }
  counter->Increment();
}

void RouterMetrics::Refresh(const FleetState& state) {
  counts_ = state.counts;
  for (const auto& [count, counter] : exported_) Raise(*counter, *count);
  Raise(replays_same_, state.audit.num_replayed() - state.audit.num_mismatches());
  Raise(replays_different_, state.audit.num_mismatches());
  if (!state.drafter_name.empty()) SetDrafter(state.drafter_name);
  const DraftLengthController::LastRound& last = state.last_round;
  draft_length_.Set(last.mean_length);
  baseline_step_.Set(last.plain_seconds);
  gain_.Set(last.gain);
  running_slots_.Set(state.gauges.running);
  free_slots_.Set(state.gauges.slots - state.gauges.running);
  waiting_.Set(state.gauges.queued);
  if (drafter_attached_ != nullptr) drafter_attached_->Set(state.drafter_attached ? 1 : 0);
  verifier_attached_.Set(state.num_pods_ready > 0 ? 1 : 0);
  ready_pods_.Set(state.num_pods_ready);
  lost_pods_.Set(state.num_pods_lost);
  for (const auto& [name, gauge] : transports_) gauge->Set(0);
  for (const v1::RingTransport transport : state.transports) {
    transports_.at(RingTransportName(transport))->Set(1);
  }
  if (state.transports.empty()) transports_.at(kNoTransport)->Set(1);
  audit_failed_.Set(state.audit_failed ? 1 : 0);
}

LiveSample RouterMetrics::Sample(const FleetState& state) const {
  const auto count = [](const Counter& counter) { return static_cast<uint64_t>(counter.Value()); };
  LiveSample sample;
  if (current_drafts_ != nullptr) {
    sample.drafts = count(current_drafts_->drafts);
    sample.drafted = count(current_drafts_->draft_tokens);
    sample.accepted = count(current_drafts_->accepted_tokens);
    sample.tested = count(current_drafts_->tested_tokens);
    for (const Counter* counter : current_drafts_->accepted_at) {
      sample.accepted_at.push_back(count(*counter));
    }
    for (const Counter* counter : current_drafts_->tested_at) {
      sample.tested_at.push_back(count(*counter));
    }
  }
  for (size_t i = 0; i < std::size(kSources); ++i) {
    sample.emitted[i] = count(*emitted_[kSources[i].first]);
  }
  sample.rounds = num_rounds_;
  sample.stage_seconds = stage_seconds_;
  const DraftLengthController::LastRound& last = state.last_round;
  sample.draft_length = last.mean_length;
  sample.gain = last.gain;
  sample.baseline_seconds = last.plain_seconds;
  sample.counts = state.counts;
  sample.gauges = state.gauges;
  sample.pods = static_cast<int>(state.num_pods_ready + state.num_pods_lost);
  sample.pods_ready = static_cast<int>(state.num_pods_ready);
  sample.verifier_attached = state.num_pods_ready > 0;
  sample.drafter_attached = state.drafter_attached;
  sample.has_drafter = drafter_attached_ != nullptr;
  sample.draft_model = drafter_;
  sample.transport =
      state.transports.empty() ? kNoTransport : RingTransportName(state.transports.front());
  return sample;
}

}  // namespace tandem
