#include "services/router/request/completion_account.h"

#include <algorithm>
#include <numeric>

namespace tandem {

void CompletionAccount::Drafted(double round_trip_seconds, double compute_seconds) {
  if (!decoding()) return;
  draft_seconds_ += compute_seconds;
  transfer_seconds_ += std::max(0.0, round_trip_seconds - compute_seconds);
}

void CompletionAccount::Verified(double round_trip_seconds, double compute_seconds) {
  if (!decoding()) return;
  verify_seconds_ += compute_seconds;
  transfer_seconds_ += std::max(0.0, round_trip_seconds - compute_seconds);
}

void CompletionAccount::AddDraftedRound(const DraftedRound& round, const std::string& name) {
  const bool is_model = round.drafter == Drafter::kModel;
  Drafts& drafts = drafts_[{round.drafter, is_model ? name : std::string()}];
  ++drafts.rounds;
  drafts.drafted += round.drafted;
  drafts.accepted += round.accepted;
  drafts.tested += round.tested;
  if (round.plain_tokens > 0) drafts.round_tokens += round.emitted;
  drafts.plain_tokens += round.plain_tokens;
  ++num_drafts_;
  num_draft_tokens_ += round.drafted;
  num_trees_ += round.drafted > round.depth ? 1 : 0;
  if (accepted_per_position_.size() < static_cast<size_t>(round.depth)) {
    accepted_per_position_.resize(round.depth);
    tested_per_position_.resize(round.depth);
  }
  for (int i = 0; i < round.accepted; ++i) ++accepted_per_position_[i];
  for (int i = 0; i < round.tested; ++i) ++tested_per_position_[i];
  drafter_ = name;
}

void CompletionAccount::Emitted(double now) {
  if (!decoding()) first_token_at_ = now;
  last_token_at_ = now;
}

void CompletionAccount::Fill(v1::Completion* completion) const {
  const int accepted =
      std::accumulate(accepted_per_position_.begin(), accepted_per_position_.end(), 0);
  const int tested = std::accumulate(tested_per_position_.begin(), tested_per_position_.end(), 0);
  v1::SpeculationStats* stats = completion->mutable_speculation();
  stats->set_num_drafts(num_drafts_);
  stats->set_num_draft_tokens(num_draft_tokens_);
  stats->set_num_trees(num_trees_);
  stats->set_num_accepted_tokens(accepted);
  stats->set_num_tested_tokens(tested);
  stats->set_num_plain_rounds(num_plain_rounds_);
  stats->set_drafter(drafter_);
  Drafts predicted;
  for (const auto& [who, drafts] : drafts_) {
    if (drafts.rounds == 0) continue;  // it worked in vain
    if (who.first == Drafter::kPrediction) predicted = drafts;
    v1::DrafterStats* of_drafter = stats->add_drafters();
    of_drafter->set_name(DrafterName(who.first));
    of_drafter->set_model(who.second);
    of_drafter->set_num_drafts(drafts.rounds);
    of_drafter->set_num_draft_tokens(drafts.drafted);
    of_drafter->set_num_accepted_tokens(drafts.accepted);
    of_drafter->set_num_tested_tokens(drafts.tested);
    of_drafter->set_num_round_tokens(drafts.round_tokens);
    of_drafter->set_num_plain_tokens(drafts.plain_tokens);
  }
  completion->mutable_usage()->set_accepted_prediction_tokens(predicted.accepted);
  completion->mutable_usage()->set_rejected_prediction_tokens(predicted.tested -
                                                              predicted.accepted);
  for (int count : accepted_per_position_) stats->add_num_accepted_tokens_per_position(count);
  for (int count : tested_per_position_) stats->add_num_tested_tokens_per_position(count);
  if (num_draft_tokens_ > 0) {
    stats->set_acceptance_rate(static_cast<double>(accepted) / num_draft_tokens_);
    stats->set_mean_acceptance_length(1.0 + static_cast<double>(accepted) / num_drafts_);
  }
  if (tested > 0) stats->set_alpha(static_cast<double>(accepted) / tested);

  v1::Timings* timings = completion->mutable_timings();
  const double first_token_at = first_token_at_.value_or(last_token_at_);
  const double decode = last_token_at_ - first_token_at;
  timings->set_queue_seconds(admitted_at_ - arrived_at_);
  timings->set_prefill_seconds(first_token_at - admitted_at_);
  timings->set_time_to_first_token_seconds(first_token_at - arrived_at_);
  timings->set_decode_seconds(decode);
  timings->set_draft_seconds(draft_seconds_);
  timings->set_verify_seconds(verify_seconds_);
  timings->set_transfer_seconds(transfer_seconds_);
  timings->set_router_seconds(
      std::max(0.0, decode - draft_seconds_ - verify_seconds_ - transfer_seconds_));
}

}  // namespace tandem
