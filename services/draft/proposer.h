// Drafts tokens for a batch of slots: the interface, and how it is done where logits are in the
// host's memory.
#ifndef TANDEM_SERVICES_DRAFT_PROPOSER_H_
#define TANDEM_SERVICES_DRAFT_PROPOSER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/model/llama.h"
#include "services/worker/slot_table.h"

namespace tandem {

// One slot's share of a batch.
struct Proposal {
  Slot* slot = nullptr;
  std::span<const int32_t> token_ids;  // what the slot lacks; fed first
  size_t draft_length = 0;             // 0: only catch up. PRECOND when > 0: token_ids is not empty
  // [draft_length, vocabulary_size] f32 where the distributions go that tokens are drawn from, one
  // row for each. Empty: not wanted.
  std::span<float> draft_log_probs;
  // Out: at most draft_length; fewer when a row of logits was not finite (whether a position is
  // drafted depends on the tokens before it alone, never on the draw, so nothing is biased).
  std::vector<int32_t> draft_token_ids;
};

// Autoregressive drafting, batched over slots: one pass feeds what all of them lack, then one pass
// a position; a slot drops out as it has its tokens. Feeds d1 … d(K-1): the last draft token is fed
// only once it is committed.
class Proposer {
 public:
  virtual ~Proposer() = default;

  // PRECOND: different slots, each with room for token_ids and draft_length - 1 rows more; ids in
  // the vocabulary. An error is the model's. With or without one, caches may have rows that are not
  // booked: TruncateTo drops them.
  virtual absl::Status Run(std::span<Proposal> proposals) = 0;
  // Of the last run, its first pass: the tokens that were lacking, and the first draws.
  virtual double catch_up_seconds() const = 0;
};

class HostProposer final : public Proposer {
 public:
  // `model` must outlive it.
  explicit HostProposer(LlamaModel* model);

  absl::Status Run(std::span<Proposal> proposals) override;
  double catch_up_seconds() const override { return catch_up_seconds_; }

 private:
  LlamaModel* model_;
  double catch_up_seconds_ = 0;
  std::vector<float> scratch_;  // [vocabulary_size]
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_DRAFT_PROPOSER_H_
