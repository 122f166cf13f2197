// Which heads an operator wants the verifiers of a router to have.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_ROSTER_HEADS_CHOICE_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_ROSTER_HEADS_CHOICE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"

namespace tandem {

// Errors change nothing, and their messages are for the operator.
class HeadsChoice {
 public:
  // As of v1.SetHeads. None: nobody has chosen, and each verifier keeps the heads that it has.
  const std::optional<std::string>& wanted() const { return wanted_; }

  // Chooses other heads, or tries the same ones again. INVALID_ARGUMENT: `heads` is neither "none"
  // nor a name of a folder.
  absl::Status Swap(const std::string& heads);
  // Takes the last Swap back, once. FAILED_PRECONDITION: there is none.
  absl::Status RollBack();

  bool operator==(const HeadsChoice&) const = default;

 private:
  std::optional<std::string> wanted_;
  std::optional<std::string> former_;  // was wanted before the last Swap; none: there is none
  uint64_t num_changes_ = 0;           // a choice that is made again is another one
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_ROSTER_HEADS_CHOICE_H_
