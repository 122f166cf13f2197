#include "services/verifier/judge.h"

#include "common/status.h"

namespace tandem {

std::vector<ForwardItem> ItemsOf(std::span<const Judgement> judgements,
                                 std::vector<std::vector<int32_t>>* fed) {
  fed->resize(judgements.size());
  std::vector<ForwardItem> items;
  for (size_t i = 0; i < judgements.size(); ++i) {
    const Judgement& judgement = judgements[i];
    std::vector<int32_t>& tokens = (*fed)[i];
    tokens.assign(judgement.token_ids.begin(), judgement.token_ids.end());
    tokens.insert(tokens.end(), judgement.draft_token_ids.begin(), judgement.draft_token_ids.end());
    if (tokens.empty()) continue;  // all came out of the prefix cache
    items.push_back({.cache = judgement.slot->cache(),
                     .token_ids = tokens,
                     .parents = {},
                     .num_logits = judgement.num_logits()});
  }
  return items;
}

absl::Status HostJudge::Run(std::span<Judgement> judgements) {
  if (judgements.empty()) return absl::OkStatus();
  std::vector<std::vector<int32_t>> fed;
  const std::vector<ForwardItem> items = ItemsOf(judgements, &fed);
  TANDEM_ASSIGN_OR_RETURN(const LogitsView logits, model_->Forward(items));

  size_t row = 0;
  for (size_t i = 0; i < judgements.size(); ++i) {
    Judgement& judgement = judgements[i];
    Slot& slot = *judgement.slot;
    const size_t length_before = slot.length();
    slot.Append(judgement.token_ids);
    if (!judgement.sample) continue;
    judgement.verdict = VerifyBlock({.target_logits = logits.row(row),
                                     .logits_stride = logits.stride,
                                     .vocabulary_size = model_->config().vocabulary_size,
                                     .draft_token_ids = judgement.draft_token_ids,
                                     .draft_log_probs = judgement.draft_log_probs,
                                     .params = &slot.params(),
                                     .counts = slot.counts(),
                                     .num_output_tokens = slot.num_output_tokens(),
                                     .position = slot.length(),
                                     .drafter = 0});
    row += judgement.num_logits();
    if (!judgement.verdict.finite) {
      slot.TruncateTo(length_before);
      continue;
    }
    slot.Append(judgement.draft_token_ids.first(judgement.verdict.num_accepted));
    slot.TruncateTo(slot.length());  // the rejected rows, which are not booked
  }
  return absl::OkStatus();
}

}  // namespace tandem
