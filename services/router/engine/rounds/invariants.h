// What holds between any two events of a pod, whatever workers and clients do.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_INVARIANTS_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_INVARIANTS_H_

#include <string>

#include "services/router/engine/rounds/round_state.h"

namespace tandem {

// Returns the first invariant that does not hold, in words; empty: all hold. The cost is a walk
// over the slots.
std::string BrokenInvariant(const RoundState& state);

// Ends the process if an invariant does not hold. A router whose books are wrong could tell a
// client wrong tokens. A supervisor starts the router again, and clients repeat their requests.
void AssertInvariants(const RoundState& state);

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_INVARIANTS_H_
