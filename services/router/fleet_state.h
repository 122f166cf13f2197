// What an operator sees of a router's engines: of one, or summed over all pods.
#ifndef TANDEM_SERVICES_ROUTER_FLEET_STATE_H_
#define TANDEM_SERVICES_ROUTER_FLEET_STATE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "services/router/draft_length_controller.h"
#include "services/router/engine.h"
#include "tandem/v1/generate.pb.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

struct FleetState {
  v1::ServerLoad load;
  uint32_t num_slots = 0;
  uint32_t num_pods_ready = 0;  // their verifiers serve
  uint32_t num_pods_lost = 0;
  bool drafter_attached = false;                // one at least
  std::string drafter_name;                     // of one that was found to fit; empty: none was
  std::vector<v1::RingTransport> transports;    // of rings that are open
  DraftLengthController::LastRound last_round;  // mean over the pods, by running requests
  bool audit_failed = false;

  // The state of one more engine.
  void Add(const Engine& engine);
};

// What is counted since the start, without what is a state.
void AddCounts(const v1::ServerLoad& one, v1::ServerLoad* all);

FleetState StateOf(const Engine& engine);

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_FLEET_STATE_H_
