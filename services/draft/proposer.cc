#include "services/draft/proposer.h"

#include <algorithm>
#include <utility>

#include "common/status.h"
#include "kernels/sampling/draw.h"
#include "services/worker/stopwatch.h"

namespace tandem {
namespace {

// Draws the siblings of the slot's newest token.
void DrawSiblings(DraftDraw draw, DrawKey key, DraftTask& task, std::span<float> scratch) {
  const size_t row_size = draw.drawn_from.size();
  const size_t wanted = task.NumSiblings(task.draft_token_ids.size() - 1);
  for (size_t sibling = 1; sibling <= wanted; ++sibling) {
    const size_t row = task.draft_length + task.sibling_token_ids.size();
    key.sibling = static_cast<uint8_t>(sibling);
    draw = DrawSibling(draw, task.slot->params(), key,
                       task.draft_log_probs.empty()
                           ? scratch
                           : task.draft_log_probs.subspan(row * row_size, row_size));
    task.sibling_token_ids.push_back(draw.token_id);
  }
}

// Draws the slot's next token from `logits`. Returns false if the logits are not finite.
bool Draw(std::span<const float> logits, DraftTask& task, std::span<float> scratch) {
  const size_t drawn = task.draft_token_ids.size();
  Slot& slot = *task.slot;
  std::span<float> log_probs;
  if (!task.draft_log_probs.empty()) {
    log_probs = task.draft_log_probs.subspan(drawn * logits.size(), logits.size());
  }
  const DrawKey key{.seed = slot.params().seed, .position = slot.length(), .drafter = task.drafter};
  const DraftDraw draw = DrawDraftToken(logits, slot.params(), *slot.counts(),
                                        slot.num_output_tokens(), key, log_probs, scratch);
  if (!draw.finite) return false;
  task.draft_token_ids.push_back(draw.token_id);
  DrawSiblings(draw, key, task, scratch);
  return true;
}

}  // namespace

HostProposer::HostProposer(LanguageModel* model, bool guesses)
    : model_(model), guesses_(guesses), scratch_(model->description().vocabulary_size) {}

bool HostProposer::MayGuess(const SamplingParams& params) const {
  return guesses_ && num_drafting_ <= kMostGuessingSlots &&
         (params.greedy() || params.reproducible);
}

void HostProposer::AddToPass(DraftTask* task, std::span<const int32_t> token_ids, Pass* pass) {
  Feed& feed = pass->feeds.emplace_back();
  feed.task = task;
  feed.token_ids.assign(token_ids.begin(), token_ids.end());
  feed.num_known = token_ids.size();
  if (task->draft_length == 0) return;
  const size_t missing = task->draft_length - task->draft_token_ids.size();
  if (MayGuess(task->slot->params()) && missing > 1) {
    const std::span<const int32_t> held = task->slot->token_ids();
    std::vector<int32_t> text(held.end() - std::min(held.size(), TokenGuesses::kHistory),
                              held.end());
    text.insert(text.end(), token_ids.begin(), token_ids.end());
    feed.guess = token_guesses_.After(text, missing - 1);
    feed.token_ids.insert(feed.token_ids.end(), feed.guess.token_ids.begin(),
                          feed.guess.token_ids.end());
  }
  feed.num_logits = 1 + feed.guess.token_ids.size();
}

absl::Status HostProposer::Compute(Pass* pass) {
  std::vector<ForwardItem> items;
  uint32_t& num_rows = pass_rows_.emplace_back(0);
  for (const Feed& feed : pass->feeds) {
    num_rows += static_cast<uint32_t>(feed.token_ids.size());
    items.push_back({.cache = feed.task->slot->cache(),
                     .token_ids = feed.token_ids,
                     .parents = {},
                     .num_logits = feed.num_logits});
  }
  TANDEM_ASSIGN_OR_RETURN(pass->logits, model_->Forward(items));
  for (const Feed& feed : pass->feeds) {
    feed.task->slot->Append(std::span(feed.token_ids).first(feed.num_known));
  }
  return absl::OkStatus();
}

bool HostProposer::DrawFrom(const Feed& feed, const LogitsView& logits, size_t first_row) {
  DraftTask& task = *feed.task;
  const std::vector<int32_t>& guessed = feed.guess.token_ids;
  bool finite = true;
  size_t num_right = 0;
  for (size_t row = 0; row < feed.num_logits; ++row) {
    finite = Draw({logits.row(first_row + row), scratch_.size()}, task, scratch_);
    const bool is_right =
        finite && row < guessed.size() && task.draft_token_ids.back() == guessed[row];
    if (!is_right) break;
    // Its row is in the cache already.
    task.slot->Append(std::span(guessed).subspan(row, 1));
    ++num_right;
  }
  if (!guessed.empty()) {
    token_guesses_.OnDrawn(feed.guess, num_right);
    num_guessed_ += guessed.size();
    num_guessed_right_ += num_right;
    task.slot->TruncateTo(task.slot->length());  // drops the rows of wrong guesses
  }
  return finite && task.draft_token_ids.size() < task.draft_length;
}

absl::Status HostProposer::Run(std::span<DraftTask> tasks) {
  const Stopwatch first_pass;
  catch_up_seconds_ = 0;
  pass_rows_.clear();
  num_drafting_ = static_cast<size_t>(std::count_if(
      tasks.begin(), tasks.end(), [](const DraftTask& task) { return task.draft_length > 0; }));
  Pass pass;
  for (DraftTask& task : tasks) {
    if (!task.token_ids.empty()) AddToPass(&task, task.token_ids, &pass);
  }
  while (!pass.feeds.empty()) {
    TANDEM_RETURN_IF_ERROR(Compute(&pass));
    Pass next;
    size_t row = 0;
    for (const Feed& feed : pass.feeds) {
      const bool goes_on = feed.num_logits > 0 && DrawFrom(feed, pass.logits, row);
      row += feed.num_logits;
      if (goes_on) {
        AddToPass(feed.task, std::span(feed.task->draft_token_ids).last(1), &next);
      }
    }
    pass = std::move(next);
    if (catch_up_seconds_ == 0) catch_up_seconds_ = first_pass.seconds();
  }
  return absl::OkStatus();
}

}  // namespace tandem
