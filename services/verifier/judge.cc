#include "services/verifier/judge.h"

#include "common/status.h"
#include "kernels/sampling/log_probs_report.h"
#include "kernels/sampling/transform/transform.h"

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

bool Score(const LogitsView& logits, size_t vocabulary_size, JudgeTask& task) {
  task.scores.clear();
  for (size_t i = 0; i < task.num_scored; ++i) {
    const std::span row(logits.row(i), vocabulary_size);
    if (!AllFinite(row)) return false;
    const bool is_last = i + 1 == task.token_ids.size();
    task.scores.push_back(ReportLogProbs(row,
                                         is_last ? task.following_token_id : task.token_ids[i + 1],
                                         task.slot->params().num_prompt_logprobs));
  }
  return true;
}

absl::Status HostJudge::Run(std::span<JudgeTask> tasks) {
  if (tasks.empty()) return absl::OkStatus();
  std::vector<std::vector<int32_t>> fed;
  const std::vector<ForwardItem> items = ItemsOf(tasks, &fed);
  TANDEM_ASSIGN_OR_RETURN(const LogitsView logits, model_->Forward(items));

  size_t row = 0;
  for (JudgeTask& task : tasks) {
    TANDEM_RETURN_IF_ERROR(Judged(logits, row, task));
    row += task.num_logits();
  }
  return absl::OkStatus();
}

absl::Status HostJudge::Judged(const LogitsView& logits, size_t row, JudgeTask& task) {
  Slot& slot = *task.slot;
  const size_t vocabulary_size = model_->description().vocabulary_size;
  const size_t length_before = slot.length();
  slot.Append(task.token_ids);
  const LogitsView rows = {logits.row(row), logits.stride, task.num_logits()};
  const size_t first_judged = task.num_logits() - task.num_judged();
  task.verdict.finite = Score(rows, vocabulary_size, task);
  if (task.sample && task.verdict.finite) {
    task.verdict = AcceptReject({.target_logits = rows.row(first_judged),
                                 .logits_stride = logits.stride,
                                 .vocabulary_size = vocabulary_size,
                                 .draft_token_ids = task.draft_token_ids,
                                 .draft_parents = task.draft_parents,
                                 .draft_log_probs = task.draft_log_probs,
                                 .num_found = 0,
                                 .params = &slot.params(),
                                 .counts = slot.counts(),
                                 .num_output_tokens = slot.num_output_tokens(),
                                 .position = slot.length(),
                                 .drafter = task.drafter});
  }
  if (!task.verdict.finite) {
    slot.TruncateTo(length_before);
    return absl::OkStatus();
  }
  if (!task.sample) return absl::OkStatus();
  if (task.feature_place.has_value()) {
    model_->self_drafter()->KeepFeature(*task.feature_place,
                                        row + first_judged + task.newest_row());
  }
  return slot.KeepPath(task.draft_token_ids, task.verdict.path);
}

}  // namespace tandem
