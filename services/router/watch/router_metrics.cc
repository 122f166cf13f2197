#include "services/router/watch/router_metrics.h"

namespace tandem {

RouterMetrics::RouterMetrics(const std::string& version, const std::string& model,
                             uint32_t max_draft_length, bool has_drafter)
    : registry_("router", version, {{"model", model}}),
      requests_(&registry_),
      rounds_(&registry_),
      tokens_(&registry_, max_draft_length),
      counts_(&registry_),
      states_(&registry_, has_drafter) {}

void RouterMetrics::OnCompleted(const v1::Completion& completion) {
  requests_.OnCompleted(completion);
  tokens_.OnCompleted(completion);
}

void RouterMetrics::Refresh(const FleetState& state) {
  counts_.Refresh(state);
  for (const DraftModelState& model : state.draft_models) {
    if (!model.name.empty()) tokens_.AddDraftModel(model.name);
  }
  states_.Refresh(state);
}

LiveSample RouterMetrics::Sample(const FleetState& state) {
  LiveSample sample;
  requests_.FillIn(&sample);
  tokens_.FillIn(&sample);
  rounds_.FillIn(&sample);
  states_.FillIn(state, &sample);
  return sample;
}

}  // namespace tandem
