// What holds between any two events of a fleet, whatever workers and clients do. The invariants of
// one pod are in engine/rounds/invariants.h.
#ifndef TANDEM_SERVICES_ROUTER_FLEET_FLEET_INVARIANTS_H_
#define TANDEM_SERVICES_ROUTER_FLEET_FLEET_INVARIANTS_H_

#include <cstddef>

#include "services/router/fleet/fleet.h"

namespace tandem {

// Ends the process unless each request that waits or runs has one id in admission's list, and no id
// is left of a request that ended. `num_ids`: Admission::num_request_ids.
void AssertEachRequestHasItsId(const Fleet& fleet, size_t num_ids);

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_FLEET_FLEET_INVARIANTS_H_
