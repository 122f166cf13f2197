// One request: the tokens that the router owns the truth of.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_SEQUENCE_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_SEQUENCE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/token_hash.h"
#include "common/tokenizer/tokenizer.h"
#include "services/router/drafting/acceptance_estimate.h"
#include "services/router/engine/engine_command.h"
#include "services/router/request/completion_account.h"
#include "services/router/request/generation_request.h"
#include "services/router/request/output_processor.h"

namespace tandem {

class Sequence {
 public:
  // `tokenizer` and what `acceptance_estimate` refers to must outlive it.
  Sequence(CallId call_id, GenerationRequest generation_request, double arrived_at,
           const Tokenizer* tokenizer, AcceptanceEstimate acceptance_estimate)
      : call(call_id),
        request(std::move(generation_request)),
        output(&request, tokenizer),
        account(arrived_at),
        acceptance(acceptance_estimate) {
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
  // Of tokens [0, length). PRECOND: length <= committed_len().
  uint64_t prefix_hash(uint32_t length) const { return prefix_hashes_[length]; }

  // Decodes a finished request again, for the audit: nobody waits for it.
  bool is_replay() const { return !expected.empty(); }
  AcceptanceMode mode() const {
    return request.greedy()              ? AcceptanceMode::kGreedy
           : request.open.reproducible() ? AcceptanceMode::kReproducible
                                         : AcceptanceMode::kSampled;
  }

  const CallId call;
  const GenerationRequest request;
  OutputProcessor output;
  CompletionAccount account;
  AcceptanceEstimate acceptance;
  std::vector<int32_t> expected;  // of a replay: the output that the client got

  uint64_t order = 0;   // by first admission: the lower goes first where pages are short
  uint64_t serial = 0;  // of the life in a slot: tells a late reply from one for this life
  std::optional<SlotLife> last_slot;  // that it has left; none: it had none

  uint32_t furthest_len = 0;  // most rows that the verifier ever held: beyond is progress
  int resyncs = 0;            // ABORTED by the verifier since the last progress
  int lost_rounds = 0;        // verifiers that died with it in their batch, likewise
  double suspected_at = 0;    // when the last of those was lost
  int draft_resyncs = 0;      // the same of the drafter, since its last draft
  int lost_drafts = 0;
  bool drafting_off = false;              // the drafter cannot serve this sequence
  uint32_t num_cached_prompt_tokens = 0;  // found in the verifier's prefix cache
  uint32_t num_cached_draft_tokens = 0;   // found in the drafter's

  std::string numerics_id;  // of the verifier that its newest token is from; empty: it has none
  // While no engine has it (Fleet).
  double homeless_since = 0;  // no pod could take it, whatever room there were

 private:
  std::vector<int32_t> tokens_;          // prompt and committed output
  std::vector<uint64_t> prefix_hashes_;  // [committed_len + 1]
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_SEQUENCE_H_
