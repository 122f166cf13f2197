// Drafting for a batch of slots: the interface, and its implementation for models whose logits are
// in host memory.
#ifndef TANDEM_SERVICES_DRAFT_PROPOSER_H_
#define TANDEM_SERVICES_DRAFT_PROPOSER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/model/language_model.h"
#include "services/worker/slots/slot_table.h"

namespace tandem {

// What a proposer does for one slot of a batch.
struct DraftTask {
  Slot* slot = nullptr;
  std::span<const int32_t> token_ids;  // committed tokens that the slot lacks; fed first
  size_t draft_length = 0;             // 0: only catch up. PRECOND if > 0: token_ids is not empty
  // [draft_length, vocabulary_size] f32: receives the log-probabilities of the distributions that
  // the tokens are drawn from, one row for each token. Empty: nobody wants the rows.
  std::span<float> draft_log_probs;
  // Out: at most draft_length tokens. There are fewer if a row of logits was not finite. Whether a
  // position is drafted depends only on the tokens before it, never on the draw, so the output
  // stays unbiased.
  std::vector<int32_t> draft_token_ids;
};

// Autoregressive drafting, batched over slots. The first pass feeds the tokens that the slots lack.
// Then there is one pass for each further position; a slot leaves the batch when it has its tokens.
// The passes feed the draft tokens d1 … d(K-1). The last draft token is fed only after it is
// committed.
class Proposer {
 public:
  virtual ~Proposer() = default;

  // PRECOND: the slots differ; each slot has room for token_ids and draft_length - 1 more rows; all
  // ids are in the vocabulary. Errors come from the model. After success and after an error, caches
  // may hold rows that are not booked; Slot::TruncateTo drops these rows.
  virtual absl::Status Run(std::span<DraftTask> tasks) = 0;
  // Seconds that the first pass of the last run took: the lacking tokens and the first draws.
  virtual double catch_up_seconds() const = 0;
};

class HostProposer final : public Proposer {
 public:
  // `model` must outlive the proposer.
  explicit HostProposer(LanguageModel* model);

  absl::Status Run(std::span<DraftTask> tasks) override;
  double catch_up_seconds() const override { return catch_up_seconds_; }

 private:
  LanguageModel* model_;
  double catch_up_seconds_ = 0;
  std::vector<float> scratch_;  // [vocabulary_size]
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_DRAFT_PROPOSER_H_
