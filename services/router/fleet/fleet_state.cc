#include "services/router/fleet/fleet_state.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "common/rpc/protocol.h"

namespace tandem {
namespace {

// Whether a verifier has the heads that are wanted, as of HeadsChoice.
bool IsWanted(const v1::SelfDrafter& drafter, const std::optional<std::string>& wanted) {
  if (!wanted.has_value()) return true;
  if (wanted->empty()) return drafter.is_first();
  return *wanted == kNoHeads ? drafter.name().empty() : drafter.heads() == *wanted;
}

}  // namespace

std::string NameForOperator(const DraftModelState& model) {
  if (!model.name.empty()) return model.name;
  if (!model.place.folder.empty()) return model.place.folder;
  return PeerName(kDrafterPeer + static_cast<PeerId>(model.number));
}

void FleetState::Add(const PodEngine& engine) {
  const WorkerSessions& workers = engine.workers();
  const double before = gauges.running;
  const Gauges one = engine.ReadGauges();
  gauges += one;
  counts += engine.counts();
  ++(workers.ready(kVerifierPeer) ? num_pods_ready : num_pods_lost);
  AddDraftModels(engine);
  AddHeads(engine);
  comparison += engine.comparison();
  compared = engine.state().draft_models.compared();
  // What runs nowhere is of the first engine.
  const bool is_first = num_pods_ready + num_pods_lost == 1;
  const double share = is_first ? 1 : one.running / std::max(1.0, before + one.running);
  const DraftLengthController::LastRound last = engine.last_round();
  const auto mix = [share](double newer, double* mean) { *mean += share * (newer - *mean); };
  if (is_first) {
    last_round = last;
  } else {
    mix(last.mean_length, &last_round.mean_length);
    mix(last.plain_seconds, &last_round.plain_seconds);
    mix(last.gain, &last_round.gain);
  }
}

void FleetState::AddDraftModels(const PodEngine& engine) {
  const WorkerSessions& workers = engine.workers();
  const DraftRoster& roster = engine.state().draft_models.roster();
  for (PeerId peer = kDrafterPeer; peer < workers.num_peers(); ++peer) {
    const size_t number = DraftModelOf(peer);
    if (!roster.has(number)) continue;
    const auto known = std::find_if(draft_models.begin(), draft_models.end(),
                                    [&](const auto& model) { return model.number == number; });
    DraftModelState& model = known != draft_models.end() ? *known : draft_models.emplace_back();
    model.number = number;
    model.place = roster.place(number);
    model.share = roster.ShareOf(number);
    if (workers.ready(peer)) ++model.num_attached;
    if (workers.attaching(peer)) ++model.num_loading;
    if (model.problem_in_full.empty()) {
      model.problem_in_full = workers.drafter_problem_in_full(peer);
    }
    model.attached = model.attached || workers.ready(peer);
    if (model.name.empty()) model.name = workers.drafter_name(peer);
    if (model.problem.empty()) model.problem = workers.drafter_problem(peer);
    if (!workers.ring(peer).open()) continue;
    model.transport = workers.ring(peer).transport();
    if (std::find(transports.begin(), transports.end(), model.transport) == transports.end()) {
      transports.push_back(model.transport);
    }
  }
}

void FleetState::AddHeads(const PodEngine& engine) {
  const WorkerSessions& workers = engine.workers();
  const HeadsSwap& swap = workers.heads();
  heads.wanted = engine.state().draft_models.roster().heads().wanted();
  if (heads.problem_in_full.empty()) heads.problem_in_full = swap.problem();
  if (workers.info(kVerifierPeer) == nullptr) {
    ++heads.num_loading;
    return;
  }
  const v1::SelfDrafter& drafter = workers.info(kVerifierPeer)->self_drafter();
  const bool has_wanted = IsWanted(drafter, heads.wanted);
  if (!workers.ready(kVerifierPeer) || swap.under_way()) {
    ++heads.num_loading;
  } else if (has_wanted) {
    ++heads.num_attached;
  }
  if (heads.name.empty()) heads.name = drafter.heads();
  if (heads.drafter.empty()) heads.drafter = drafter.name();
  ++heads.num_pods[{drafter.heads(), drafter.name().empty() ? "none" : drafter.name()}];
  if (drafter.name().empty()) return;
  if (std::find(heads.kinds.begin(), heads.kinds.end(), drafter.name()) == heads.kinds.end()) {
    heads.kinds.push_back(drafter.name());
  }
}

bool FleetState::drafter_attached() const {
  return std::any_of(draft_models.begin(), draft_models.end(),
                     [](const DraftModelState& model) { return model.attached; });
}

double FleetState::attached_share() const {
  int num_models = 0;
  int num_attached = 0;
  for (const DraftModelState& model : draft_models) {
    // Nothing is missing while a canary is loaded for the first time.
    if (model.place.role == DraftRole::kCanary && model.name.empty()) continue;
    ++num_models;
    if (model.attached) ++num_attached;
  }
  return num_models == 0 ? 0 : static_cast<double>(num_attached) / num_models;
}

std::string FleetState::drafter_names() const {
  const bool any_attached = drafter_attached();
  std::vector<std::string> names;
  for (const DraftModelState& model : draft_models) {
    if (model.name.empty() || (any_attached && !model.attached)) continue;
    names.push_back(model.name);
  }
  return absl::StrJoin(names, ", ");
}

std::string FleetState::drafter_problem() const {
  for (const DraftModelState& model : draft_models) {
    if (!model.attached && !model.problem.empty()) return model.problem;
  }
  return "";
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
