// Judging of draft blocks, for a batch of slots in one pass of the target model: the interface, and
// its implementation for models whose logits are in host memory.
#ifndef TANDEM_SERVICES_VERIFIER_JUDGE_H_
#define TANDEM_SERVICES_VERIFIER_JUDGE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/model/language_model.h"
#include "common/ring/log_prob_ring.h"
#include "kernels/sampling/accept_reject.h"
#include "services/worker/slots/slot_table.h"

namespace tandem {

// What a judge does for one slot of a batch.
struct JudgeTask {
  Slot* slot = nullptr;
  // Committed tokens that the slot lacks, the pending token last. They are fed first, and they are
  // kept whatever the verdict on the draft is. PRECOND: not empty if `sample`.
  std::span<const int32_t> token_ids;
  std::span<const int32_t> draft_token_ids;  // judged; PRECOND: empty unless `sample`
  std::span<const int32_t> draft_parents;    // as DraftShape says; empty: a chain
  const float* draft_log_probs = nullptr;    // as in AcceptRejectArgs
  std::optional<RingBlock> ring_block;  // the ring entry of draft_log_probs, if they are in one
  uint8_t drafter = 0;  // as in DrawKey: the number of the draft model that drew the draft
  bool sample = false;  // false: only fill the cache
  // The first rows of token_ids that get the log-probabilities of the token after them, and the
  // token after token_ids, which the last row needs if it is one of them. PRECOND: there is no
  // draft if any row is scored.
  size_t num_scored = 0;
  int32_t following_token_id = 0;
  // Where the target's own drafter keeps the feature of the newest kept row, which a proposal is
  // made from. None: no proposal is wanted. PRECOND: the model has a drafter of its own.
  std::optional<size_t> feature_place;
  BlockVerdict verdict;               // out, if `sample`; not finite if a scored row is not
  std::vector<TokenLogProbs> scores;  // out: num_scored, if all of them are finite
  // Out: false if a draft row was no distribution that gives its token. Then the block was dropped
  // without judgment, and the verdict is that of a slot without a draft.
  bool drafts_valid = true;

  // Number of rows that are judged: that of the pending token, and those of the draft tokens.
  size_t num_judged() const { return sample ? draft_token_ids.size() + 1 : 0; }
  // Number of rows with logits, the judged ones last.
  size_t num_logits() const { return num_scored > 0 ? token_ids.size() : num_judged(); }
  // The row of the last accepted token among them. PRECOND: the verdict is finite.
  size_t newest_row() const {
    return verdict.path.empty() ? 0 : static_cast<size_t>(verdict.path.back()) + 1;
  }
};

// Feeds [token_ids, draft_token_ids] of every slot. The last K + 1 rows judge the draft tokens that
// follow them (AcceptRejectArgs). Afterwards a slot holds token_ids and the accepted draft tokens,
// without any rejected token. A slot whose verdict is not finite is as it was before.
class Judge {
 public:
  virtual ~Judge() = default;

  // PRECOND: the slots differ and have room for all rows; all ids are in the vocabulary. Errors
  // come from the model. After an error, caches may hold rows that are not booked; Slot::TruncateTo
  // drops these rows.
  virtual absl::Status Run(std::span<JudgeTask> tasks) = 0;
  // True if the judge checks draft rows as IsDraftRowValid does. Otherwise the caller must check
  // them before Run.
  virtual bool checks_draft_rows() const = 0;
};

// Returns the items of a pass for `tasks`: for each task its token_ids and draft_token_ids, with
// logits of the rows that are judged. `fed` holds the tokens that the items refer to.
std::vector<ForwardItem> ItemsOf(std::span<const JudgeTask> tasks,
                                 std::vector<std::vector<int32_t>>* fed);

// Fills in the scores of a task. `logits` are those of its first rows, in memory of the host.
// Returns false if any that is read is not finite.
bool Score(const LogitsView& logits, size_t vocabulary_size, JudgeTask& task);

class HostJudge final : public Judge {
 public:
  // `model` must outlive the judge.
  explicit HostJudge(LanguageModel* model) : model_(model) {}

  absl::Status Run(std::span<JudgeTask> tasks) override;
  bool checks_draft_rows() const override { return false; }

 private:
  // `logits` are those of the pass, in which the task's begin at `row`.
  absl::Status Judged(const LogitsView& logits, size_t row, JudgeTask& task);

  LanguageModel* model_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_VERIFIER_JUDGE_H_
