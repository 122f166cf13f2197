// One worker pod: a verifier and its draft models on one host.
#ifndef TANDEM_SERVICES_ROUTER_FLEET_POD_SPEC_H_
#define TANDEM_SERVICES_ROUTER_FLEET_POD_SPEC_H_

#include <string>
#include <vector>

namespace tandem {

struct PodSpec {
  std::string verifier;               // address, as people write it
  std::vector<std::string> drafters;  // one for each draft model; empty: none

  bool operator==(const PodSpec&) const = default;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_FLEET_POD_SPEC_H_
