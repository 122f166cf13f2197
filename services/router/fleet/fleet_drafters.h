// What is known of the drafters of a fleet, over all pods.
#ifndef TANDEM_SERVICES_ROUTER_FLEET_FLEET_DRAFTERS_H_
#define TANDEM_SERVICES_ROUTER_FLEET_FLEET_DRAFTERS_H_

#include <string>
#include <vector>

#include "services/router/fleet/fleet.h"

namespace tandem {

// Returns true if nothing about drafting is under way at any pod
// (WorkerSessions::drafters_settled).
bool DraftersSettled(const Fleet& fleet);

// Returns the names of the draft models that were found to fit, attached or not, in the order of
// their numbers.
std::vector<std::string> DraftModels(const Fleet& fleet);

// Returns why a drafter does not fit the target. Empty: all fit, or were not asked yet.
std::string DrafterMisfit(const Fleet& fleet);

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_FLEET_FLEET_DRAFTERS_H_
