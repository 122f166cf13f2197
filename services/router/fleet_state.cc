#include "services/router/fleet_state.h"

#include <algorithm>

namespace tandem {

void AddCounts(const v1::ServerLoad& one, v1::ServerLoad* all) {
  all->set_num_finished(all->num_finished() + one.num_finished());
  all->set_num_preemptions(all->num_preemptions() + one.num_preemptions());
  all->set_num_verifier_losses(all->num_verifier_losses() + one.num_verifier_losses());
  all->set_num_drafter_losses(all->num_drafter_losses() + one.num_drafter_losses());
  all->set_num_ring_errors(all->num_ring_errors() + one.num_ring_errors());
  all->set_num_cached_prompt_tokens(all->num_cached_prompt_tokens() +
                                    one.num_cached_prompt_tokens());
  all->set_num_cached_draft_tokens(all->num_cached_draft_tokens() + one.num_cached_draft_tokens());
  *all->mutable_audit() = one.audit();  // of all engines: they share it
}

namespace {

void AddStates(const v1::ServerLoad& one, v1::ServerLoad* all) {
  all->set_num_running(all->num_running() + one.num_running());
  all->set_num_queued(all->num_queued() + one.num_queued());
  all->set_num_kv_pages(all->num_kv_pages() + one.num_kv_pages());
  all->set_num_free_kv_pages(all->num_free_kv_pages() + one.num_free_kv_pages());
  all->set_num_draft_kv_pages(all->num_draft_kv_pages() + one.num_draft_kv_pages());
  all->set_num_free_draft_kv_pages(all->num_free_draft_kv_pages() + one.num_free_draft_kv_pages());
  if (one.kv_page_tokens() > 0) all->set_kv_page_tokens(one.kv_page_tokens());
}

}  // namespace

void FleetState::Add(const Engine& engine) {
  const WorkerSessions& workers = engine.workers();
  const auto before = static_cast<double>(load.num_running());
  const v1::ServerLoad one = engine.Load();
  AddCounts(one, &load);
  AddStates(one, &load);
  num_slots += engine.num_slots();
  ++(workers.ready(Worker::kVerifier) ? num_pods_ready : num_pods_lost);
  drafter_attached = drafter_attached || workers.ready(Worker::kDrafter);
  if (drafter_name.empty()) drafter_name = workers.drafter_name();
  if (workers.ring().open() && std::find(transports.begin(), transports.end(),
                                         workers.ring().transport()) == transports.end()) {
    transports.push_back(workers.ring().transport());
  }
  // What runs nowhere is of the first engine.
  const bool is_first = num_pods_ready + num_pods_lost == 1;
  const double share = is_first ? 1 : one.num_running() / std::max(1.0, before + one.num_running());
  const DraftLengthController::LastRound& last = engine.controller().last_round();
  const auto mix = [share](double newer, double* mean) { *mean += share * (newer - *mean); };
  if (is_first) {
    last_round = last;
  } else {
    mix(last.mean_length, &last_round.mean_length);
    mix(last.plain_seconds, &last_round.plain_seconds);
    mix(last.gain, &last_round.gain);
  }
  audit_failed = audit_failed || engine.audit().failed();
}

FleetState StateOf(const Engine& engine) {
  FleetState state;
  state.Add(engine);
  return state;
}

}  // namespace tandem
