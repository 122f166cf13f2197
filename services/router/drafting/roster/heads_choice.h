// Which heads an operator wants the verifiers of a router to have.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_ROSTER_HEADS_CHOICE_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_ROSTER_HEADS_CHOICE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tandem {

// Errors change nothing, and their messages are for the operator.
class HeadsChoice {
 public:
  // As of v1.SetHeads. None: nobody has chosen, and each verifier keeps the heads that it has.
  const std::optional<std::string>& wanted() const { return wanted_; }

  // Chooses other heads, or tries the same ones again. `present`: what the verifiers have, as of
  // v1.SetHeads, for a way back from the first choice. INVALID_ARGUMENT: `heads` is neither "none"
  // nor a name of a folder.
  absl::Status Swap(const std::string& heads, const std::string& present);
  // Takes the last Swap back; called again, the one before. `swapped`, if it is not empty, must be
  // what that Swap chose. FAILED_PRECONDITION: there is none, or it chose something else.
  absl::Status RollBack(const std::string& swapped = {});

  bool operator==(const HeadsChoice&) const = default;

 private:
  std::optional<std::string> wanted_;
  std::vector<std::string> former_;  // what was wanted before the last swaps, the newest one last
  uint64_t num_changes_ = 0;         // a choice that is made again is another one
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_ROSTER_HEADS_CHOICE_H_
