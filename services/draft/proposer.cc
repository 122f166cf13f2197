#include "services/draft/proposer.h"

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
  const DrawKey key{.seed = slot.params().seed, .position = slot.length()};
  const DraftDraw draw = DrawDraftToken(logits, slot.params(), *slot.counts(),
                                        slot.num_output_tokens(), key, log_probs, scratch);
  if (!draw.finite) return false;
  task.draft_token_ids.push_back(draw.token_id);
  DrawSiblings(draw, key, task, scratch);
  return true;
}

}  // namespace

HostProposer::HostProposer(LanguageModel* model)
    : model_(model), scratch_(model->description().vocabulary_size) {}

absl::Status HostProposer::Run(std::span<DraftTask> tasks) {
  const Stopwatch first_pass;
  catch_up_seconds_ = 0;
  std::vector<ForwardItem> items;
  std::vector<DraftTask*> drafting;  // in the order of the logits' rows
  for (DraftTask& task : tasks) {
    if (task.token_ids.empty()) continue;
    const bool drafts = task.draft_length > 0;
    items.push_back({.cache = task.slot->cache(),
                     .token_ids = task.token_ids,
                     .parents = {},
                     .num_logits = drafts ? size_t{1} : size_t{0}});
    if (drafts) drafting.push_back(&task);
  }
  if (items.empty()) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(LogitsView logits, model_->Forward(items));
  for (DraftTask& task : tasks) task.slot->Append(task.token_ids);

  while (!drafting.empty()) {
    std::vector<DraftTask*> next;
    items.clear();
    for (size_t i = 0; i < drafting.size(); ++i) {
      DraftTask& task = *drafting[i];
      if (!Draw({logits.row(i), scratch_.size()}, task, scratch_)) continue;
      if (task.draft_token_ids.size() == task.draft_length) continue;
      items.push_back({.cache = task.slot->cache(),
                       .token_ids = std::span(task.draft_token_ids).last(1),
                       .parents = {},
                       .num_logits = 1});
      next.push_back(&task);
    }
    drafting = std::move(next);
    if (catch_up_seconds_ == 0) catch_up_seconds_ = first_pass.seconds();
    if (drafting.empty()) break;
    TANDEM_ASSIGN_OR_RETURN(logits, model_->Forward(items));
    for (DraftTask* task : drafting) {
      task->slot->Append(std::span(task->draft_token_ids).last(1));
    }
  }
  if (catch_up_seconds_ == 0) catch_up_seconds_ = first_pass.seconds();  // nothing was drafted
  return absl::OkStatus();
}

}  // namespace tandem
