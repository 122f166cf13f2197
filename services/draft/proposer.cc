#include "services/draft/proposer.h"

#include "common/status.h"
#include "kernels/sampling/draw.h"
#include "services/worker/stopwatch.h"

namespace tandem {
namespace {

// Draws the slot's next token from `logits`; false when they are not finite.
bool Draw(std::span<const float> logits, Proposal& proposal, std::span<float> scratch) {
  const size_t drawn = proposal.draft_token_ids.size();
  Slot& slot = *proposal.slot;
  std::span<float> log_probs;
  if (!proposal.draft_log_probs.empty()) {
    log_probs = proposal.draft_log_probs.subspan(drawn * logits.size(), logits.size());
  }
  const DrawKey key{.seed = slot.params().seed, .position = slot.length()};
  const DraftDraw draw = DrawDraftToken(logits, slot.params(), *slot.counts(),
                                        slot.num_output_tokens(), key, log_probs, scratch);
  if (draw.finite) proposal.draft_token_ids.push_back(draw.token_id);
  return draw.finite;
}

}  // namespace

HostProposer::HostProposer(LlamaModel* model)
    : model_(model), scratch_(model->config().vocabulary_size) {}

absl::Status HostProposer::Run(std::span<Proposal> proposals) {
  const Stopwatch first_pass;
  catch_up_seconds_ = 0;
  std::vector<ForwardItem> items;
  std::vector<Proposal*> drafting;  // in the order of the logits' rows
  for (Proposal& proposal : proposals) {
    if (proposal.token_ids.empty()) continue;
    const bool drafts = proposal.draft_length > 0;
    items.push_back({.cache = proposal.slot->cache(),
                     .token_ids = proposal.token_ids,
                     .parents = {},
                     .num_logits = drafts ? size_t{1} : size_t{0}});
    if (drafts) drafting.push_back(&proposal);
  }
  if (items.empty()) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(LogitsView logits, model_->Forward(items));
  for (Proposal& proposal : proposals) proposal.slot->Append(proposal.token_ids);

  while (!drafting.empty()) {
    std::vector<Proposal*> next;
    items.clear();
    for (size_t i = 0; i < drafting.size(); ++i) {
      Proposal& proposal = *drafting[i];
      if (!Draw({logits.row(i), scratch_.size()}, proposal, scratch_)) continue;
      if (proposal.draft_token_ids.size() == proposal.draft_length) continue;
      items.push_back({.cache = proposal.slot->cache(),
                       .token_ids = std::span(proposal.draft_token_ids).last(1),
                       .parents = {},
                       .num_logits = 1});
      next.push_back(&proposal);
    }
    drafting = std::move(next);
    if (catch_up_seconds_ == 0) catch_up_seconds_ = first_pass.seconds();
    if (drafting.empty()) break;
    TANDEM_ASSIGN_OR_RETURN(logits, model_->Forward(items));
    for (Proposal* proposal : drafting) {
      proposal->slot->Append(std::span(proposal->draft_token_ids).last(1));
    }
  }
  if (catch_up_seconds_ == 0) catch_up_seconds_ = first_pass.seconds();  // nothing was drafted
  return absl::OkStatus();
}

}  // namespace tandem
