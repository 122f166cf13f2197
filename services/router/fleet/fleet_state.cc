#include "services/router/fleet/fleet_state.h"

#include <algorithm>

namespace tandem {

void FleetState::Add(const PodEngine& engine) {
  const WorkerSessions& workers = engine.workers();
  const double before = gauges.running;
  const Gauges one = engine.ReadGauges();
  gauges += one;
  counts += engine.counts();
  ++(workers.ready(kVerifierPeer) ? num_pods_ready : num_pods_lost);
  drafter_attached = drafter_attached || workers.ready(kDrafterPeer);
  if (drafter_name.empty()) drafter_name = workers.drafter_name();
  if (drafter_problem.empty()) drafter_problem = workers.drafter_problem();
  if (workers.ring().open() && std::find(transports.begin(), transports.end(),
                                         workers.ring().transport()) == transports.end()) {
    transports.push_back(workers.ring().transport());
  }
  // What runs nowhere is of the first engine.
  const bool is_first = num_pods_ready + num_pods_lost == 1;
  const double share = is_first ? 1 : one.running / std::max(1.0, before + one.running);
  const DraftLengthController::LastRound& last = engine.controller().last_round();
  const auto mix = [share](double newer, double* mean) { *mean += share * (newer - *mean); };
  if (is_first) {
    last_round = last;
  } else {
    mix(last.mean_length, &last_round.mean_length);
    mix(last.plain_seconds, &last_round.plain_seconds);
    mix(last.gain, &last_round.gain);
  }
}

v1::ServerLoad ServerLoadOf(const FleetState& state) {
  const Counts& counts = state.counts;
  const Gauges& gauges = state.gauges;
  v1::ServerLoad load;
  load.set_num_running(gauges.running);
  load.set_num_queued(gauges.queued);
  load.set_num_kv_pages(gauges.kv_pages[Worker::kVerifier]);
  load.set_num_free_kv_pages(gauges.free_kv_pages[Worker::kVerifier]);
  load.set_num_draft_kv_pages(gauges.kv_pages[Worker::kDrafter]);
  load.set_num_free_draft_kv_pages(gauges.free_kv_pages[Worker::kDrafter]);
  load.set_kv_page_tokens(gauges.kv_page_tokens);
  load.set_num_finished(counts.finished);
  load.set_num_preemptions(counts.preemptions);
  load.set_num_verifier_losses(counts.losses[Worker::kVerifier]);
  load.set_num_drafter_losses(counts.losses[Worker::kDrafter]);
  load.set_num_ring_errors(counts.ring_errors);
  load.set_num_cached_prompt_tokens(counts.cached_prompt_tokens);
  load.set_num_cached_draft_tokens(counts.cached_draft_tokens);
  *load.mutable_audit() = state.audit;
  return load;
}

}  // namespace tandem
