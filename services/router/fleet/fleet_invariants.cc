#include "services/router/fleet/fleet_invariants.h"

#include <cstdio>
#include <cstdlib>

namespace tandem {

void AssertEachRequestHasItsId(const Fleet& fleet, size_t num_ids) {
  size_t num_requests = fleet.num_waiting();
  for (size_t pod = 0; pod < fleet.num_pods(); ++pod) {
    num_requests += fleet.engine(pod).num_running();
  }
  if (num_requests == num_ids) return;
  (void)std::fprintf(stderr,
                     "router: an invariant of the fleet does not hold: %zu requests wait or run, "
                     "and %zu ids are in use\n",
                     num_requests, num_ids);
  std::abort();
}

}  // namespace tandem
