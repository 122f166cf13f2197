// The settings of a router's engine.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_ENGINE_OPTIONS_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_ENGINE_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "services/router/drafting/lookup/ngram_lookup.h"
#include "services/router/engine/sessions/worker_sessions.h"

namespace tandem {

// One set for admission and all pods. Every field is a flag of the router (common/flags).
struct EngineOptions {
  WorkerSessionsOptions workers;
  // Largest number of new requests that wait for a slot.
  size_t max_queue = 256;
  // Draft length of requests that do not name one. None: DraftLengthController chooses what pays.
  std::optional<uint32_t> draft_length;
  // How the n-gram drafter looks for drafts.
  NgramOptions ngram;
  // Whether the router has a corpus for the retrieval drafter.
  bool has_corpus = false;
  // Largest number of rows in one batch that is sent to a worker.
  uint32_t step_rows = 512;
  // While other slots decode, the part of a prompt between two of their rounds is cut to what takes
  // about this number of seconds.
  double step_seconds = 0.2;
  // With two cohorts, the drafter works for one half of the slots while the verifier works for the
  // other half.
  uint32_t num_cohorts = 1;
  // Requests end with UNAVAILABLE after this number of seconds without a verifier.
  double verifier_timeout_seconds = 30;
  // A drafter whose batch takes longer is given up and attached anew.
  double drafter_timeout_seconds = 30;
  // A request that was in the batch of this number of dying verifiers in a row is refused.
  int max_lost_rounds = 2;
  // Share of finished requests that are decoded again without drafting (docs/audit.md).
  double audit_fraction = 0;
  uint64_t audit_key = 0;  // key that chooses these requests
  // Whether the engine makes the log's debug lines about single rounds (--log-level debug).
  bool debug_lines = true;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_ENGINE_OPTIONS_H_
