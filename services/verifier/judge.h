// Scores draft blocks of a batch of slots in one pass of the target model, and says how much of
// each to keep: the interface, and how it is done where logits are in the host's memory.
#ifndef TANDEM_SERVICES_VERIFIER_JUDGE_H_
#define TANDEM_SERVICES_VERIFIER_JUDGE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/model/llama.h"
#include "kernels/sampling/verify_block.h"
#include "services/worker/slot_table.h"

namespace tandem {

// One slot's share of a batch.
struct Judgement {
  Slot* slot = nullptr;
  // Fed first, and kept whatever comes of the draft: committed tokens, the pending one last.
  // PRECOND: not empty.
  std::span<const int32_t> token_ids;
  std::span<const int32_t> draft_token_ids;  // judged; PRECOND: empty unless `sample`
  const float* draft_log_probs = nullptr;    // as in VerifyBlockArgs
  bool sample = false;                       // false: only fill the cache
  BlockVerdict verdict;                      // out, when `sample`
  // Out: false where a draft row was no distribution that gives its token. The block was dropped
  // unjudged then, and the verdict is as if nothing had been drafted.
  bool drafts_valid = true;

  // Rows that are judged, the bonus's among them.
  size_t num_logits() const { return sample ? draft_token_ids.size() + 1 : 0; }
};

// Feeds [token_ids, draft_token_ids] of every slot; row i of the last K + 1 judges draft token i +
// 1, row K gives the bonus. Afterwards a slot holds token_ids and the accepted draft tokens;
// nothing of what was rejected. A slot whose verdict is not finite is as it was before.
class Judge {
 public:
  virtual ~Judge() = default;

  // PRECOND: different slots with room for all rows; ids in the vocabulary. An error is the model's
  // and leaves caches with rows that are not booked: TruncateTo drops them.
  virtual absl::Status Run(std::span<Judgement> judgements) = 0;
  // Whether it looks at draft rows as IsDraftRowValid does; else PRECOND: they are valid.
  virtual bool checks_draft_rows() const = 0;
};

// What a pass is fed for `judgements`: for each its token_ids and draft_token_ids, with logits of the
// rows that are judged. `fed` holds the tokens that the items refer to.
std::vector<ForwardItem> ItemsOf(std::span<const Judgement> judgements,
                                 std::vector<std::vector<int32_t>>* fed);

class HostJudge final : public Judge {
 public:
  // `model` must outlive it.
  explicit HostJudge(LlamaModel* model) : model_(model) {}

  absl::Status Run(std::span<Judgement> judgements) override;
  bool checks_draft_rows() const override { return false; }

 private:
  LlamaModel* model_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_VERIFIER_JUDGE_H_
