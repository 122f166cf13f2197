#include "services/verifier/judge.h"

#include "common/status.h"

namespace tandem {

std::vector<ForwardItem> ItemsOf(std::span<const JudgeTask> tasks,
                                 std::vector<std::vector<int32_t>>* fed) {
  fed->resize(tasks.size());
  std::vector<ForwardItem> items;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const JudgeTask& task = tasks[i];
    std::vector<int32_t>& tokens = (*fed)[i];
    tokens.assign(task.token_ids.begin(), task.token_ids.end());
    tokens.insert(tokens.end(), task.draft_token_ids.begin(), task.draft_token_ids.end());
    if (tokens.empty()) continue;  // the prefix cache had all tokens
    items.push_back({.cache = task.slot->cache(),
                     .token_ids = tokens,
                     .parents = task.draft_parents,
                     .num_logits = task.num_logits()});
  }
  return items;
}

absl::Status HostJudge::Run(std::span<JudgeTask> tasks) {
  if (tasks.empty()) return absl::OkStatus();
  std::vector<std::vector<int32_t>> fed;
  const std::vector<ForwardItem> items = ItemsOf(tasks, &fed);
  TANDEM_ASSIGN_OR_RETURN(const LogitsView logits, model_->Forward(items));

  size_t row = 0;
  for (size_t i = 0; i < tasks.size(); ++i) {
    JudgeTask& task = tasks[i];
    Slot& slot = *task.slot;
    const size_t length_before = slot.length();
    slot.Append(task.token_ids);
    if (!task.sample) continue;
    task.verdict = AcceptReject({.target_logits = logits.row(row),
                                 .logits_stride = logits.stride,
                                 .vocabulary_size = model_->description().vocabulary_size,
                                 .draft_token_ids = task.draft_token_ids,
                                 .draft_parents = task.draft_parents,
                                 .draft_log_probs = task.draft_log_probs,
                                 .num_found = 0,
                                 .params = &slot.params(),
                                 .counts = slot.counts(),
                                 .num_output_tokens = slot.num_output_tokens(),
                                 .position = slot.length(),
                                 .drafter = task.drafter});
    const size_t first_row = row;
    row += task.num_logits();
    if (!task.verdict.finite) {
      slot.TruncateTo(length_before);
      continue;
    }
    if (task.feature_place.has_value()) {
      model_->self_drafter()->KeepFeature(*task.feature_place, first_row + task.newest_row());
    }
    TANDEM_RETURN_IF_ERROR(slot.KeepPath(task.draft_token_ids, task.verdict.path));
  }
  return absl::OkStatus();
}

}  // namespace tandem
