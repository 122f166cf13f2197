// The drafters of a fleet, over all pods: what is known of them, and how an operator changes them.
#ifndef TANDEM_SERVICES_ROUTER_FLEET_FLEET_DRAFTERS_H_
#define TANDEM_SERVICES_ROUTER_FLEET_FLEET_DRAFTERS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "services/router/fleet/fleet.h"

namespace tandem {

// Returns true if nothing about drafting is under way at any pod
// (WorkerSessions::drafters_settled).
bool DraftersSettled(const Fleet& fleet);

// Returns the names of the draft models that were found to fit, attached or not, in the order of
// their numbers.
std::vector<std::string> DraftModelNames(const Fleet& fleet);

// Returns the names of the drafters that live in the verifiers of the pods: one, unless a swap of
// heads is under way or has failed somewhere.
std::vector<std::string> SelfDrafterNames(const Fleet& fleet);

// Returns why a drafter does not fit the target. Empty: all fit, or were not asked yet.
std::string DrafterMisfit(const Fleet& fleet);

// Changes of the draft models. A model is named as requests name it (ServerInfo.drafters), or by
// its folder. Errors change nothing. They are those of DraftRoster, ALREADY_EXISTS (a model has the
// name) and NOT_FOUND (no model has it).
absl::Status LoadDraftModel(const std::string& folder, double share, double now, Fleet* fleet);
absl::Status PromoteDraftModel(double now, Fleet* fleet);
absl::Status RollBackDraftModels(double now, Fleet* fleet);
absl::Status UnloadDraftModel(const std::string& name, double now, Fleet* fleet);

// Returns the heads of the first verifier that has stated some, as of v1.SetHeads.
std::string PresentHeads(const Fleet& fleet);

// Changes of the heads. Errors change nothing, and are those of HeadsChoice.
absl::Status SwapHeads(const std::string& heads, double now, Fleet* fleet);
absl::Status RollBackHeads(const std::string& swapped, double now, Fleet* fleet);

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_FLEET_FLEET_DRAFTERS_H_
