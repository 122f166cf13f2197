// What an operator sees of a router's engines: of one, or summed over all pods.
#ifndef TANDEM_SERVICES_ROUTER_FLEET_FLEET_STATE_H_
#define TANDEM_SERVICES_ROUTER_FLEET_FLEET_STATE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "services/router/drafting/draft_length_controller.h"
#include "services/router/engine/counts.h"
#include "services/router/engine/pod_engine.h"
#include "tandem/v1/generate.pb.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

struct FleetState {
  Counts counts;
  Gauges gauges;
  v1::AuditStats audit;  // one audit covers all engines
  bool audit_failed = false;
  uint32_t num_pods_ready = 0;  // their verifiers serve
  uint32_t num_pods_lost = 0;
  bool drafter_attached = false;                // one at least
  std::string drafter_name;                     // name of a drafter that fits; empty: none does
  std::string drafter_problem;                  // why a pod's drafter is not attached
  std::vector<v1::RingTransport> transports;    // transports of open rings
  DraftLengthController::LastRound last_round;  // mean over the pods, by running requests

  // Adds the state of one more engine, but for the audit.
  void Add(const PodEngine& engine);
};

v1::ServerLoad ServerLoadOf(const FleetState& state);

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_FLEET_FLEET_STATE_H_
