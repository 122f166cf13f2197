// What a pod tells the rest of the router about sequences that left their slots.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_POD_REPORT_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_POD_REPORT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "services/router/engine/sequence.h"

namespace tandem {

// A pod never calls admission. It returns sequences as values, in the order of what happened.
struct PodReport {
  enum class Kind : uint8_t {
    kFinished,   // the request ended with `status`
    kPreempted,  // the slot or its pages are needed by others; the sequence waits for a new slot
    kSuspect,    // verifiers died with it in their batch, too often in a row
  };
  Kind kind;
  std::unique_ptr<Sequence> sequence;
  absl::Status status = {};  // kFinished only
};
using PodReports = std::vector<PodReport>;

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_POD_REPORT_H_
