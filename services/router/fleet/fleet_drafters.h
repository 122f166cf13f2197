// What is known of the drafters of a fleet, over all pods.
#ifndef TANDEM_SERVICES_ROUTER_FLEET_FLEET_DRAFTERS_H_
#define TANDEM_SERVICES_ROUTER_FLEET_FLEET_DRAFTERS_H_

#include <string>

#include "services/router/fleet/fleet.h"

namespace tandem {

// Returns true if nothing about drafting is under way at any pod (WorkerSessions::drafter_settled).
bool DraftersSettled(const Fleet& fleet);

// Returns the name of the first drafter that was found to fit, attached or not; empty: none was.
std::string DrafterName(const Fleet& fleet);

// Returns why a drafter does not fit the target. Empty: all fit, or were not asked yet.
std::string DrafterMisfit(const Fleet& fleet);

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_FLEET_FLEET_DRAFTERS_H_
