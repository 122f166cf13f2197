#include "services/router/fleet/fleet_drafters.h"

#include <cstddef>

namespace tandem {

bool DraftersSettled(const Fleet& fleet) {
  for (size_t pod = 0; pod < fleet.num_pods(); ++pod) {
    if (!fleet.engine(pod).workers().drafter_settled()) return false;
  }
  return true;
}

std::string DrafterMisfit(const Fleet& fleet) {
  for (size_t pod = 0; pod < fleet.num_pods(); ++pod) {
    const WorkerSessions& workers = fleet.engine(pod).workers();
    if (workers.refused(kDrafterPeer)) return workers.drafter_problem();
  }
  return "";
}

std::string DrafterName(const Fleet& fleet) {
  for (size_t pod = 0; pod < fleet.num_pods(); ++pod) {
    const std::string& name = fleet.engine(pod).workers().drafter_name();
    if (!name.empty()) return name;
  }
  return "";
}

}  // namespace tandem
