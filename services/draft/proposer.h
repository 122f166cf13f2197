// Drafting for a batch of slots: the interface, and its implementation for models whose logits are
// in host memory.
#ifndef TANDEM_SERVICES_DRAFT_PROPOSER_H_
#define TANDEM_SERVICES_DRAFT_PROPOSER_H_

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/model/language_model.h"
#include "services/draft/token_guesses.h"
#include "services/worker/slots/slot_table.h"

namespace tandem {

// What a proposer does for one slot of a batch.
struct DraftTask {
  Slot* slot = nullptr;
  std::span<const int32_t> token_ids;  // committed tokens that the slot lacks; fed first
  size_t draft_length = 0;             // 0: only catch up. PRECOND if > 0: token_ids is not empty
  uint8_t drafter = 0;                 // as in DrawKey: the number of this draft model
  // [i]: siblings that are wanted at position i, at most kMaxSiblings. At most draft_length
  // entries; where there is none, no siblings are wanted.
  std::vector<uint32_t> num_siblings = {};
  // [draft_length + all siblings, vocabulary_size] f32: receives the log-probabilities of the
  // distributions that the tokens are drawn from, one row for each token, and then for each
  // sibling. Empty: nobody wants the rows.
  std::span<float> draft_log_probs;
  // Out: at most draft_length tokens. There are fewer if a row of logits was not finite. Whether a
  // position is drafted depends only on the tokens before it, never on the draw, so the output
  // stays unbiased.
  std::vector<int32_t> draft_token_ids;
  // Out: the siblings of the first position, of the second one, and so on. Some are missing if
  // there are fewer draft tokens than asked for.
  std::vector<int32_t> sibling_token_ids = {};

  size_t NumSiblings(size_t position) const {
    return position < num_siblings.size() ? num_siblings[position] : 0;
  }
  size_t TotalSiblings() const {
    return std::accumulate(num_siblings.begin(), num_siblings.end(), size_t{0});
  }
};

// Autoregressive drafting, batched over slots. The first pass feeds the tokens that the slots lack.
// Then there is one pass for each further position; a slot leaves the batch when it has its tokens.
// The passes feed the draft tokens d1 … d(K-1). The last draft token is fed only after it is
// committed. Siblings are drawn from the same logits, and never fed.
class Proposer {
 public:
  virtual ~Proposer() = default;

  // PRECOND: the slots differ; each slot has room for token_ids and draft_length - 1 more rows; all
  // ids are in the vocabulary. Errors come from the model. After success and after an error, caches
  // may hold rows that are not booked; Slot::TruncateTo drops these rows.
  virtual absl::Status Run(std::span<DraftTask> tasks) = 0;
  // Seconds that the first pass of the last run took: the lacking tokens and the first draws.
  virtual double catch_up_seconds() const = 0;
  // Rows of each pass of the last run. A proposer with the passes that the interface describes says
  // nothing.
  virtual std::vector<uint32_t> pass_rows() const { return {}; }
  // Tokens that were guessed, and those of them that were drawn, since the start. A proposer that
  // does not guess has none.
  virtual uint64_t num_guessed() const { return 0; }
  virtual uint64_t num_guessed_right() const { return 0; }
};

// Guesses what the model will draw (TokenGuesses), and lets a pass compute the rows of the guesses
// too. As long as guesses are right, their rows give the next tokens without a pass. A row has the
// same bits in every pass, so the draws are those of a proposer that does not guess.
//
// The time of a run then depends on draws, also on those that nobody will judge, and the router
// chooses later lengths by such times. Where a request draws plainly, that would bias its output
// (docs/controller.md), so nothing is guessed for it. Greedy and coupled outputs do not depend on
// the choice. In large batches, the slot with the longest draft decides how many passes there are,
// and right guesses of the others save none.
class HostProposer final : public Proposer {
 public:
  // `model` must outlive the proposer.
  explicit HostProposer(LanguageModel* model, bool guesses = true);

  absl::Status Run(std::span<DraftTask> tasks) override;
  double catch_up_seconds() const override { return catch_up_seconds_; }
  std::vector<uint32_t> pass_rows() const override { return pass_rows_; }
  uint64_t num_guessed() const override { return num_guessed_; }
  uint64_t num_guessed_right() const override { return num_guessed_right_; }

 private:
  // The rows of one slot in a pass.
  struct Feed {
    DraftTask* task = nullptr;
    std::vector<int32_t> token_ids;  // known tokens, then guesses
    size_t num_known = 0;
    size_t num_logits = 0;  // rows of the last known token and of the guesses; 0: it catches up
    TokenGuesses::Guess guess;
  };
  struct Pass {
    std::vector<Feed> feeds;
    LogitsView logits;
  };

  // Largest number of drafting slots in a batch with guesses.
  static constexpr size_t kMostGuessingSlots = 4;

  bool MayGuess(const SamplingParams& params) const;
  // Adds the task to a pass that feeds `token_ids`, which its slot lacks.
  void AddToPass(DraftTask* task, std::span<const int32_t> token_ids, Pass* pass);
  absl::Status Compute(Pass* pass);
  // Draws tokens from the rows of a pass, up to the first guess that is wrong. Returns true if the
  // task lacks tokens.
  bool DrawFrom(const Feed& feed, const LogitsView& logits, size_t first_row);

  LanguageModel* model_;
  bool guesses_;
  TokenGuesses token_guesses_;
  size_t num_drafting_ = 0;  // slots of the run that draft
  uint64_t num_guessed_ = 0;
  uint64_t num_guessed_right_ = 0;
  std::vector<uint32_t> pass_rows_;
  double catch_up_seconds_ = 0;
  std::vector<float> scratch_;  // [vocabulary_size]
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_DRAFT_PROPOSER_H_
