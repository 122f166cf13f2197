// Checks of what workers answer to batches. Each check is a pure function of what was sent and of
// the answer. The rules are those of tandem/v1/worker.proto. An error says which rule the answer
// breaks; a router drops the session of a worker that broke a rule.
#ifndef TANDEM_PROTO_WORKER_REPLIES_H_
#define TANDEM_PROTO_WORKER_REPLIES_H_

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "proto/draft_tree.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// One item of a Propose, as it was sent.
struct SentPropose {
  uint32_t slot = 0;
  uint32_t begin = 0;  // rows of committed tokens that the drafter held before
  uint32_t end = 0;    // rows of committed tokens that the drafter holds after the sent tokens
  uint32_t draft_length = 0;  // largest number of tokens of the chain; 0: it only catches up
  std::vector<uint32_t> num_siblings = {};  // see ProposeItem
  std::optional<v1::RingReference> ring = {};
  uint64_t received_bytes = 0;  // bytes of log-prob rows that came for it (inline ring)

  // Draft tokens that were asked for: the chain and all siblings.
  uint32_t num_nodes() const {
    return std::accumulate(num_siblings.begin(), num_siblings.end(), draft_length);
  }
};

// One item of a Verify, as it was sent.
struct SentVerify {
  uint32_t slot = 0;
  uint32_t begin = 0;  // rows that the verifier held before
  uint32_t end = 0;    // rows of committed tokens that the verifier holds after the sent tokens
  uint32_t num_drafted = 0;
  std::vector<int32_t> parents = {};  // the draft tokens' parents; empty: a chain
  bool sample = false;                // whether the verifier draws a token after the last row
  uint32_t num_successors = 0;        // ids for each token, see VerifyResult.successors
  bool wants_logprobs = false;        // whether the verifier states log-probs of the emitted tokens
  uint32_t num_scored = 0;            // rows that prompt_logprobs are asked for
  uint32_t num_top = 0;               // most top tokens of each of them
  std::optional<DraftLimits> proposal_limits = {};  // none: no proposal was asked for
};

// A batch must be answered item by item, in the order of the items.
absl::Status CheckNumResults(size_t num_items, int num_results);

// `vocabulary_size`: of the target model. Rules about the content hold for results with
// WORKER_CODE_OK only.
absl::Status CheckProposeResult(const SentPropose& sent, const v1::ProposeResult& result,
                                uint32_t vocabulary_size);
absl::Status CheckVerifyResult(const SentVerify& sent, const v1::VerifyResult& result,
                               uint32_t vocabulary_size);

// A statistic of an audited token is in its range. NaN is not.
absl::Status CheckAuditSample(const v1::AuditSample& sample);

// The drafter sends log-prob rows only for items with an entry of an inline ring, and at most one
// row for each draft token.
bool AnswersItem(const SentPropose& sent, const v1::LogProbChunk& chunk);

// The pieces of an item's rows come in order, each once. `chunk` must answer the item.
absl::Status CheckChunk(const SentPropose& sent, const v1::LogProbChunk& chunk,
                        uint32_t vocabulary_size);

}  // namespace tandem

#endif  // TANDEM_PROTO_WORKER_REPLIES_H_
