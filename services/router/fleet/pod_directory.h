// Where worker pods are: told once, or asked of a name service again and again.
#ifndef TANDEM_SERVICES_ROUTER_FLEET_POD_DIRECTORY_H_
#define TANDEM_SERVICES_ROUTER_FLEET_POD_DIRECTORY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/router/fleet/pod_spec.h"

namespace tandem {

// All addresses of a host, as numbers: of IPv4, or of IPv6 where it has no others, since a pod that
// has both would count twice. Asks the system's resolver, and blocks meanwhile.
absl::StatusOr<std::vector<std::string>> ResolveHost(const std::string& name);

// Number of the draft models that --drafter names for each pod. PRECOND: PodDirectory takes the
// text.
uint32_t NumDraftModels(const std::string& drafters);

class PodDirectory {
 public:
  using Resolve = std::function<absl::StatusOr<std::vector<std::string>>(const std::string& name)>;
  static constexpr size_t kMaxPods = 1024;

  // From --verifier and --drafter (or "none"): one address each, as many of each with commas
  // between them, paired by their places, or dns:NAME:PORT. Where a pod has several draft models,
  // their addresses have '+' between them; all pods have the same number.
  static absl::StatusOr<PodDirectory> Parse(const std::string& verifiers,
                                            const std::string& drafters,
                                            Resolve resolve = ResolveHost);

  // The pods do not change.
  bool is_fixed() const { return name_.empty(); }
  // By any thread; may take long where it is not fixed. At least one pod, at most kMaxPods, or an
  // error: a name that has no address is one too.
  absl::StatusOr<std::vector<PodSpec>> Find() const;

 private:
  PodDirectory() = default;
  // From dns:NAME:PORT, or several of them.
  absl::Status AddDrafterPorts(const std::string& drafters);

  std::vector<PodSpec> fixed_;
  std::string name_;
  uint16_t verifier_port_ = 0;
  std::vector<uint16_t> drafter_ports_;  // one for each draft model
  Resolve resolve_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_FLEET_POD_DIRECTORY_H_
