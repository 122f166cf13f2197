// One worker pod: a verifier and its drafter on one host.
#ifndef TANDEM_SERVICES_ROUTER_FLEET_POD_SPEC_H_
#define TANDEM_SERVICES_ROUTER_FLEET_POD_SPEC_H_

#include <string>

namespace tandem {

struct PodSpec {
  std::string verifier;  // address, as people write it
  std::string drafter;   // empty: none

  bool operator==(const PodSpec&) const = default;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_FLEET_POD_SPEC_H_
