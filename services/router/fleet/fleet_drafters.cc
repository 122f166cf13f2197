#include "services/router/fleet/fleet_drafters.h"

#include <cstddef>

namespace tandem {

bool DraftersSettled(const Fleet& fleet) {
  for (size_t pod = 0; pod < fleet.num_pods(); ++pod) {
    if (!fleet.engine(pod).workers().drafter_settled()) return false;
  }
  return true;
}

std::string DrafterName(const Fleet& fleet) {
  for (size_t pod = 0; pod < fleet.num_pods(); ++pod) {
    const std::string& name = fleet.engine(pod).workers().drafter_name();
    if (!name.empty()) return name;
  }
  return "";
}

}  // namespace tandem
