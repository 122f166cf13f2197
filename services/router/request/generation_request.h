// A Generate call that was checked and resolved: every default filled in, every limit applied.
#ifndef TANDEM_SERVICES_ROUTER_REQUEST_GENERATION_REQUEST_H_
#define TANDEM_SERVICES_ROUTER_REQUEST_GENERATION_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tandem/v1/worker.pb.h"

namespace tandem {

struct GenerationRequest {
  std::string request_id;                 // never empty
  std::vector<int32_t> prompt_token_ids;  // at least one
  v1::SlotOpen open;       // what the workers are told: sampling, seed, mode, prompt length
  int32_t max_tokens = 0;  // >= 1, cut to what the context leaves
  int32_t min_tokens = 0;  // stops do not count before
  std::vector<std::string> stop_strings;
  std::vector<int32_t> stop_token_ids;  // sorted: end of text unless ignored, and the request's own
  bool include_stop_in_output = false;
  bool skip_special_tokens = true;
  bool wants_logprobs = false;
  std::optional<uint32_t> draft_length;  // none: the server's; 0: decode plainly
  bool seed_given = false;               // by the client: then its draws may repeat another's
  double arrived_at = 0;                 // on the engine's clock, before the prompt was tokenized

  bool greedy() const { return open.sampling().temperature() == 0.0f; }
  // Only then must the verifier see the rows that the draft was drawn from.
  bool needs_draft_log_probs() const { return !greedy() && !open.reproducible(); }
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_REQUEST_GENERATION_REQUEST_H_
