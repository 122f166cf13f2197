#include "services/router/fleet/fleet_drafters.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "common/rpc/protocol.h"

namespace tandem {

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
      if (workers.refused(drafter)) return workers.drafter_problem(drafter);
    }
  }
  return "";
}

std::vector<std::string> DraftModels(const Fleet& fleet) {
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

}  // namespace tandem
