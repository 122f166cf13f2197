// What a pod tells the rest of the router about sequences that left their slots, and about prompts
// that verifiers died of.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_POD_REPORT_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_POD_REPORT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "services/router/engine/request_faults.h"
#include "services/router/engine/sequence.h"

namespace tandem {

// A pod never calls admission. It returns sequences as values, in the order of what happened.
struct PodReport {
  enum class Kind : uint8_t {
    kFinished,   // the request ended with `status`
    kPreempted,  // the slot or its pages are needed by others; the sequence waits for a new slot
    kSuspect,    // verifiers died with it in their batch, too often in a row
    kPrompt,     // `prompt` has changed; no sequence leaves its slot
  };
  Kind kind;
  std::unique_ptr<Sequence> sequence;  // null for kPrompt
  absl::Status status = {};            // kFinished only
  // A verifier died while it computed this prompt, or got further than one that died.
  PromptDeaths prompt = {};
};
using PodReports = std::vector<PodReport>;

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_POD_REPORT_H_
