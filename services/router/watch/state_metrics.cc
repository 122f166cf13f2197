#include "services/router/watch/state_metrics.h"

#include "common/metrics/catalogue.h"
#include "common/rpc/ring_transport.h"

namespace tandem {
namespace {

constexpr const char* kNoTransport = "none";
constexpr const char* kNoHeadsDrafter = "none";  // as of HeadsState::Kind

}  // namespace

StateMetrics::StateMetrics(MetricRegistry* registry, bool has_drafter)
    : registry_(registry),
      draft_length_(registry->Gauge(metrics::kDraftLength)),
      baseline_step_(registry->Gauge(metrics::kBaselineStep)),
      gain_(registry->Gauge(metrics::kSpeculationGain)),
      running_slots_(registry->Gauge(metrics::kSlots, {{"state", "running"}})),
      free_slots_(registry->Gauge(metrics::kSlots, {{"state", "free"}})),
      waiting_(registry->Gauge(metrics::kRequestsWaiting)),
      drafter_attached_(has_drafter ? &registry->Gauge(metrics::kDrafterAttached) : nullptr),
      verifier_attached_(registry->Gauge(metrics::kVerifierAttached)),
      ready_pods_(registry->Gauge(metrics::kWorkerPods, {{"state", "ready"}})),
      lost_pods_(registry->Gauge(metrics::kWorkerPods, {{"state", "lost"}})),
      audit_failed_(registry->Gauge(metrics::kAuditFailed)) {
  transports_[kNoTransport] =
      &registry->Gauge(metrics::kRingTransport, {{"transport", kNoTransport}});
  for (const v1::RingTransport transport : kRingTransports) {
    const std::string name = RingTransportName(transport);
    transports_[name] = &registry->Gauge(metrics::kRingTransport, {{"transport", name}});
  }
}

void StateMetrics::Refresh(const FleetState& state) {
  const DraftLengthController::LastRound& last = state.last_round;
  draft_length_.Set(last.mean_length);
  baseline_step_.Set(last.plain_seconds);
  gain_.Set(last.gain);
  running_slots_.Set(state.gauges.running);
  free_slots_.Set(state.gauges.slots - state.gauges.running);
  waiting_.Set(state.gauges.queued);
  if (drafter_attached_ != nullptr) drafter_attached_->Set(state.attached_share());
  RefreshDraftModels(state);
  RefreshHeads(state);
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

void StateMetrics::RefreshDraftModels(const FleetState& state) {
  for (const auto& [name, gauge] : draft_models_) gauge->Set(0);
  for (const DraftModelState& model : state.draft_models) {
    if (model.name.empty()) continue;
    Gauge*& gauge = draft_models_[model.name];
    if (gauge == nullptr) {
      gauge = &registry_->Gauge(metrics::kDraftModelShare, {{"draft_model", model.name}});
    }
    gauge->Set(model.share);
  }
}

void StateMetrics::RefreshHeads(const FleetState& state) {
  for (const auto& [kind, gauge] : heads_) gauge->Set(0);
  for (const auto& [kind, num_pods] : state.heads.num_pods) {
    Gauge*& gauge = heads_[kind];
    if (gauge == nullptr) {
      gauge = &registry_->Gauge(metrics::kVerifierHeads,
                                {{"heads", kind.first}, {"drafter", kind.second}});
    }
    gauge->Set(num_pods);
  }
}

void StateMetrics::FillIn(const FleetState& state, LiveSample* sample) const {
  const DraftLengthController::LastRound& last = state.last_round;
  sample->draft_length = last.mean_length;
  sample->gain = last.gain;
  sample->baseline_seconds = last.plain_seconds;
  sample->counts = state.counts;
  sample->gauges = state.gauges;
  sample->pods = static_cast<int>(state.num_pods_ready + state.num_pods_lost);
  sample->pods_ready = static_cast<int>(state.num_pods_ready);
  sample->verifier_attached = state.num_pods_ready > 0;
  sample->drafter_attached = state.drafter_attached();
  sample->draft_model = state.drafter_names();
  sample->drafter_problem = state.drafter_problem();
  const bool some_missing = sample->drafter_attached && state.attached_share() < 1;
  if (some_missing && sample->drafter_problem.empty()) {
    sample->drafter_problem = "it was lost, or has not attached yet";
  }
  sample->has_drafter = drafter_attached_ != nullptr;
  for (const auto& [kind, num_pods] : state.heads.num_pods) {
    if (kind.second == kNoHeadsDrafter) continue;
    sample->heads.push_back({kind.first, kind.second, static_cast<int>(num_pods)});
  }
  sample->transport =
      state.transports.empty() ? kNoTransport : RingTransportName(state.transports.front());
}

}  // namespace tandem
