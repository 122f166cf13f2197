#include "services/router/fleet/fleet_drafters.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/rpc/protocol.h"
#include "common/status.h"

namespace tandem {
namespace {

// Number of a draft model. None: there is none of this name.
std::optional<size_t> FindDraftModel(const FleetState& state, const std::string& name) {
  for (const DraftModelState& model : state.draft_models) {
    if (NameForOperator(model) == name) return model.number;
  }
  return std::nullopt;
}

// Says for the log which models draft for all requests, and which stand by.
std::string WhoServes(const Fleet& fleet, const DraftRoster& roster) {
  std::vector<std::string> serving;
  std::vector<std::string> waiting;
  for (const DraftModelState& model : fleet.State().draft_models) {
    const DraftRole role = roster.place(model.number).role;
    if (role == DraftRole::kServing) serving.push_back(NameForOperator(model));
    if (role == DraftRole::kStandby) waiting.push_back(NameForOperator(model));
  }
  return absl::StrCat("for all requests: ", absl::StrJoin(serving, ", "),
                      "; standing by: ", absl::StrJoin(waiting, ", "));
}

}  // namespace

bool DraftersSettled(const Fleet& fleet) {
  for (size_t pod = 0; pod < fleet.num_pods(); ++pod) {
    if (!fleet.engine(pod).workers().drafters_settled()) return false;
  }
  return true;
}

std::string DrafterMisfit(const Fleet& fleet) {
  for (size_t pod = 0; pod < fleet.num_pods(); ++pod) {
    const WorkerSessions& workers = fleet.engine(pod).workers();
    for (PeerId drafter = kDrafterPeer; drafter < workers.num_peers(); ++drafter) {
      const bool comes_later = !fleet.roster().place(DraftModelOf(drafter)).folder.empty();
      if (workers.refused(drafter) && !comes_later) return workers.drafter_problem(drafter);
    }
  }
  return "";
}

std::vector<std::string> DraftModelNames(const Fleet& fleet) {
  std::vector<std::string> names;
  for (uint32_t model = 0; model < kMaxDraftModels; ++model) {
    for (size_t pod = 0; pod < fleet.num_pods(); ++pod) {
      const WorkerSessions& workers = fleet.engine(pod).workers();
      const PeerId peer = kDrafterPeer + model;
      if (peer >= workers.num_peers() || workers.drafter_name(peer).empty()) continue;
      const std::string& name = workers.drafter_name(peer);
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

std::vector<std::string> SelfDrafterNames(const Fleet& fleet) {
  std::vector<std::string> names;
  for (size_t pod = 0; pod < fleet.num_pods(); ++pod) {
    const v1::AttachReply* verifier = fleet.engine(pod).workers().info(kVerifierPeer);
    if (verifier == nullptr || verifier->self_drafter().name().empty()) continue;
    const std::string& name = verifier->self_drafter().name();
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

absl::Status LoadDraftModel(const std::string& folder, double share, double now, Fleet* fleet) {
  // A model that was there from the start has no folder in the roster.
  if (FindDraftModel(fleet->State(), folder).has_value()) return IsLoadedAlready(folder);
  DraftRoster roster = fleet->roster();
  TANDEM_RETURN_IF_ERROR(roster.Load(folder, share).status());
  fleet->SetRoster(
      roster,
      absl::StrCat("draft models: ", folder, " is being loaded, to draft for a share of ", share,
                   " of the requests"),
      now);
  return absl::OkStatus();
}

absl::Status PromoteDraftModel(double now, Fleet* fleet) {
  DraftRoster roster = fleet->roster();
  const std::optional<size_t> canary = roster.canary();
  TANDEM_RETURN_IF_ERROR(roster.Promote());
  for (const DraftModelState& model : fleet->State().draft_models) {
    if (model.number != canary || model.num_attached == fleet->num_pods()) continue;
    return FailedPrecondition(absl::StrCat(
        NameForOperator(model), " can draft at ", model.num_attached, " of ", fleet->num_pods(),
        " worker pods: promote it when it can at all of them, or unload it"));
  }
  fleet->SetRoster(roster, "draft models: promotion: " + WhoServes(*fleet, roster), now);
  return absl::OkStatus();
}

absl::Status RollBackDraftModels(double now, Fleet* fleet) {
  DraftRoster roster = fleet->roster();
  TANDEM_RETURN_IF_ERROR(roster.RollBack());
  fleet->SetRoster(roster, "draft models: rollback: " + WhoServes(*fleet, roster), now);
  return absl::OkStatus();
}

absl::Status UnloadDraftModel(const std::string& name, double now, Fleet* fleet) {
  const std::optional<size_t> number = FindDraftModel(fleet->State(), name);
  if (!number.has_value()) {
    return NotFound(absl::StrCat("there is no draft model \"", name, "\""));
  }
  DraftRoster roster = fleet->roster();
  TANDEM_RETURN_IF_ERROR(roster.Unload(*number));
  fleet->SetRoster(roster, "draft models: " + name + " is unloaded", now);
  return absl::OkStatus();
}

std::string PresentHeads(const Fleet& fleet) {
  for (size_t pod = 0; pod < fleet.num_pods(); ++pod) {
    const v1::AttachReply* verifier = fleet.engine(pod).workers().info(kVerifierPeer);
    if (verifier == nullptr) continue;
    const v1::SelfDrafter& drafter = verifier->self_drafter();
    if (drafter.is_first()) return "";
    return drafter.name().empty() ? std::string(kNoHeads) : drafter.heads();
  }
  return "";
}

absl::Status SwapHeads(const std::string& heads, double now, Fleet* fleet) {
  DraftRoster roster = fleet->roster();
  TANDEM_RETURN_IF_ERROR(roster.heads().Swap(heads, PresentHeads(*fleet)));
  fleet->SetRoster(roster, "heads: \"" + heads + "\" are asked for", now);
  return absl::OkStatus();
}

absl::Status RollBackHeads(const std::string& swapped, double now, Fleet* fleet) {
  DraftRoster roster = fleet->roster();
  TANDEM_RETURN_IF_ERROR(roster.heads().RollBack(swapped));
  const std::string& wanted = *roster.heads().wanted();
  fleet->SetRoster(roster,
                   "heads: rollback, " +
                       (wanted.empty() ? "those that the verifiers began with"
                                       : absl::StrCat("\"", wanted, "\"")) +
                       " are asked for",
                   now);
  return absl::OkStatus();
}

}  // namespace tandem
