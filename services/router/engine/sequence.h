// One request while it is decoded. The router owns the truth about its tokens.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_SEQUENCE_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_SEQUENCE_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/token_hash.h"
#include "common/tokenizer/tokenizer.h"
#include "services/router/drafting/acceptance/acceptance_estimate.h"
#include "services/router/drafting/acceptance/model_choice.h"
#include "services/router/drafting/lookup/request_lookups.h"
#include "services/router/engine/engine_command.h"
#include "services/router/engine/request_faults.h"
#include "services/router/request/completion_account.h"
#include "services/router/request/generation_request.h"
#include "services/router/request/output_processor.h"

namespace tandem {

// What a request has shown of its prompt.
struct PromptWitness {
  uint64_t prompt_hash = 0;
  uint32_t prompt_len = 0;
  bool prompt_is_proven = false;  // as of Sequence
  RequestFaults faults;

  // The tokens after the prompt may differ the next time, so a death there is one at its end.
  PromptDeaths Report() const {
    VerifierDeaths deaths = faults.verifier_deaths();
    if (deaths.num > 0) deaths.rows = std::min(deaths.rows, prompt_len);
    return {prompt_hash, deaths, !prompt_is_proven || deaths.num == 0};
  }
};

// Tokens of a request that were found in the prefix caches of the two workers.
struct CachedCounts {
  uint32_t verifier = 0;
  uint32_t drafter = 0;
};

// A sequence is owned by one place at a time: Admission while it waits, a slot of a PodEngine while
// it runs. Its tokens, parameters and seed are all that another pod needs to go on with it.
class Sequence {
 public:
  // `tokenizer` must outlive it.
  Sequence(CallId call_id, GenerationRequest generation_request, double arrived_at,
           const Tokenizer* tokenizer)
      : call(call_id),
        request(std::move(generation_request)),
        output(&request, tokenizer),
        account(arrived_at) {
    tokens_.reserve(request.prompt_token_ids.size() + request.max_tokens);
    prefix_hashes_.reserve(tokens_.capacity() + 1);
    prefix_hashes_.push_back(kEmptyTokenHash);
    for (int32_t id : request.prompt_token_ids) Append(id);
  }
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  void Append(int32_t token_id) {
    tokens_.push_back(token_id);
    prefix_hashes_.push_back(ExtendTokenHash(prefix_hashes_.back(), token_id));
  }

  uint32_t committed_len() const { return static_cast<uint32_t>(tokens_.size()); }
  std::span<const int32_t> tokens() const { return tokens_; }
  uint32_t prompt_len() const { return static_cast<uint32_t>(request.prompt_token_ids.size()); }
  std::span<const int32_t> output_tokens() const { return tokens().subspan(prompt_len()); }
  // Whether some verifier has computed the whole prompt without dying of it.
  bool prompt_is_proven() const { return furthest_len >= prompt_len(); }
  bool has_output() const { return committed_len() > prompt_len(); }
  // A request for the log-probabilities of its prompt alone draws no token.
  bool wants_output() const { return request.max_tokens > 0; }
  // Rows that a verifier must have computed before the request has its next tokens, or its end. The
  // last row of the prompt is of no use to a request without output, unless it is the only one.
  uint32_t num_rows_wanted() const {
    return wants_output() ? committed_len() : std::max(prompt_len() - 1, 1U);
  }
  // Rows whose next token's log-probabilities the client wants: all of the prompt but the last one.
  uint32_t num_scores_wanted() const {
    return request.open.has_prompt_logprobs() ? prompt_len() - 1 : 0;
  }
  // Those of them whose log-probabilities the client got.
  uint32_t num_scores() const { return output.num_scores(); }
  // Rows that a verifier may be taken to hold. The client must get the scores of the others, and
  // one row at least is left to send: it is where the next token comes from.
  uint32_t most_rows() const {
    return num_scores() < num_scores_wanted() ? num_scores() : num_rows_wanted() - 1;
  }
  // Tokens that the request may still emit.
  uint32_t remaining_tokens() const {
    return static_cast<uint32_t>(request.max_tokens - output.num_tokens());
  }
  // Hash of tokens [0, length). PRECOND: length <= committed_len().
  uint64_t prefix_hash(uint32_t length) const { return prefix_hashes_[length]; }
  uint64_t prompt_hash() const { return prefix_hash(prompt_len()); }
  PromptWitness witness() const {
    return {prompt_hash(), prompt_len(), prompt_is_proven(), faults};
  }

  // A replay decodes a finished request again, for the audit. No client waits for a replay.
  bool is_replay() const { return !expected.empty(); }
  AcceptanceMode mode() const {
    return request.greedy()               ? AcceptanceMode::kGreedy
           : request.has_draft_sampling() ? AcceptanceMode::kOwnDraft
           : request.open.reproducible()  ? AcceptanceMode::kReproducible
                                          : AcceptanceMode::kSampled;
  }
  // A new token was made by a verifier with this numerics_id.
  void MadeWith(const std::string& id) {
    if (id == numerics_id) return;
    has_mixed_numerics = !numerics_id.empty();
    numerics_id = id;
  }

  const CallId call;
  const GenerationRequest request;
  OutputProcessor output;
  CompletionAccount account;
  // The choice of the draft model. A pod makes it when it takes the sequence up.
  std::optional<ModelChoice> models;
  std::unique_ptr<RequestLookups> lookups;  // made with `models`; null: it uses none
  std::vector<int32_t> expected;  // output that the client got, for a replay; empty otherwise

  uint64_t order = 0;   // rank by first admission: the lower goes first where pages are short
  uint64_t serial = 0;  // number of the life in a slot, which tells a late reply from a current one
  std::optional<SlotLife> last_slot;  // slot that it has left; none: it had none
  std::optional<PodId> pod;           // pod that had it last, or has it now

  uint32_t furthest_len = 0;        // most rows that a verifier ever held
  uint32_t furthest_draft_len = 0;  // most committed rows that a drafter ever held
  RequestFaults faults;
  CachedCounts num_cached;

  std::string numerics_id;  // numerics of the verifier that made the newest token; empty: no token
  bool has_mixed_numerics = false;  // whether an older token was made with other numerics
  double homeless_since = 0;        // since when no pod could take it, whatever room there was

 private:
  std::vector<int32_t> tokens_;          // prompt and committed output
  std::vector<uint64_t> prefix_hashes_;  // [committed_len + 1]
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_SEQUENCE_H_
