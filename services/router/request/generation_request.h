// A Generate call that was checked and resolved: it has all defaults, and all limits were applied.
#ifndef TANDEM_SERVICES_ROUTER_REQUEST_GENERATION_REQUEST_H_
#define TANDEM_SERVICES_ROUTER_REQUEST_GENERATION_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "services/router/drafting/drafter_set.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

struct GenerationRequest {
  std::string request_id;                 // never empty
  uint32_t num_choices = 1;               // outputs that the client wants
  uint32_t choice = 0;                    // the one of them that this request is for
  std::vector<int32_t> prompt_token_ids;  // at least one
  v1::SlotOpen open;                      // sampling, seed, mode and prompt length for the workers
  v1::DraftSampling draft_sampling;       // where the draft model differs; nothing if greedy
  int32_t max_tokens = 0;                 // not more than the context leaves; 0: no output
  bool max_tokens_given = false;          // the client asked for a number of tokens
  int32_t min_tokens = 0;                 // number of tokens before which stops do not count
  std::vector<std::string> stop_strings;
  std::vector<int32_t> stop_token_ids;  // sorted; end of text unless ignored, and the request's own
  bool include_stop_in_output = false;
  bool skip_special_tokens = true;
  bool wants_logprobs = false;
  bool logprobs_with_text = false;
  DrafterSet drafters = DefaultDrafters();  // those that may draft for it
  std::string draft_model;                  // the only one that may draft; empty: each may
  std::vector<int32_t> prediction;          // the output that the client predicts; empty: none
  std::optional<uint32_t> draft_length;     // none: the server's choice; 0: decode plainly
  std::optional<uint32_t> max_tree_nodes;   // none: the server's choice; 0: only chains
  std::vector<std::string> warnings;        // for the client; see Completion.warnings
  std::string rendered_chat;                // the prompt that a chat became; otherwise empty
  bool seed_given = false;  // the client gave the seed, so draws may repeat another request's
  double arrived_at = 0;    // time on the engine's clock, before the prompt was tokenized

  // Allows at most `room` tokens, and warns a client that asked for more. `of` names what has no
  // room for more: "the context of 1024 tokens".
  void LimitMaxTokens(uint64_t room, const std::string& of);

  bool greedy() const { return open.sampling().temperature() == 0.0f; }
  // Returns true if each token is drawn anew, and not by noise that drafts share.
  bool is_sampled() const { return !greedy() && !open.reproducible(); }
  // Returns true if the draft model draws in another way than the target.
  bool has_draft_sampling() const {
    return draft_sampling.has_temperature() || draft_sampling.has_top_k() ||
           draft_sampling.has_top_p();
  }
  // Returns true if the draft model draws its tokens. The verifier then needs the rows that they
  // were drawn from.
  bool needs_draft_log_probs() const {
    return is_sampled() && !(draft_sampling.has_temperature() && draft_sampling.temperature() == 0);
  }
  // Returns the request for another choice of the same call.
  GenerationRequest ForChoice(uint32_t other) const;
  // Returns what opens a slot of the draft worker.
  v1::SlotOpen OpenForDrafter() const;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_REQUEST_GENERATION_REQUEST_H_
