// One request that has a slot: the tokens that the router owns the truth of.
#ifndef TANDEM_SERVICES_ROUTER_SEQUENCE_H_
#define TANDEM_SERVICES_ROUTER_SEQUENCE_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "common/token_hash.h"
#include "common/tokenizer/tokenizer.h"
#include "services/router/completion_account.h"
#include "services/router/engine_command.h"
#include "services/router/generation_request.h"
#include "services/router/output_processor.h"

namespace tandem {

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
  // Of tokens [0, length). PRECOND: length <= committed_len().
  uint64_t prefix_hash(uint32_t length) const { return prefix_hashes_[length]; }

  const CallId call;
  const GenerationRequest request;
  OutputProcessor output;
  CompletionAccount account;
  // Of the life of the slot: tells a late reply from a reply for this sequence.
  uint64_t serial = 0;
  int resyncs = 0;  // ABORTED by the verifier since the last progress
  int draft_resyncs = 0;
  int lost_rounds = 0;  // verifier sessions that ended with this sequence in their batch, likewise
  bool drafting_off = false;  // the drafter cannot serve this sequence

 private:
  std::vector<int32_t> tokens_;          // prompt and committed output
  std::vector<uint64_t> prefix_hashes_;  // [committed_len + 1]
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_SEQUENCE_H_
