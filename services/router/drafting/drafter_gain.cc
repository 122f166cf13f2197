#include "services/router/drafting/drafter_gain.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tandem {

DraftPrices PricesOf(const RoundCosts& costs, const JudgedRows& rows, const DraftingTime& time) {
  const double plain = costs.VerifySeconds(rows.num_waiting, rows.waiting_attended);
  if (plain <= 0) return {};
  const double tokens_per_second = rows.num_waiting / plain;
  const double others = costs.VerifySeconds(rows.other_rows, rows.other_attended);
  const double all = costs.VerifySeconds(rows.other_rows + rows.draft_rows,
                                         rows.other_attended + rows.draft_attended);
  const double of_rows = std::max(0.0, all - others);
  const double in_turn = time.before + time.beside + of_rows;
  double share = 1;  // what the slots wait for, of the drafters' time
  if (time.overlapped && in_turn > 0) {
    const double round = std::max(time.before, others + of_rows + time.beside);
    share = std::max(0.0, round - others) / in_turn;
  }
  DraftPrices prices;
  prices.second = share * tokens_per_second;
  if (rows.draft_rows > 0) prices.row = prices.second * of_rows / rows.draft_rows;
  return prices;
}

void GainSums::AddRound(double tokens, double plain_tokens) {
  const double all_plain_tokens = plain_tokens + std::exchange(pending_, 0);
  ++num_drafts_;
  tokens_ += tokens;
  plain_tokens_ += plain_tokens;
  tokens_squared_ += tokens * tokens;
  plain_squared_ += all_plain_tokens * all_plain_tokens;
  products_ += tokens * all_plain_tokens;
}

void GainSums::AddWork(double plain_tokens) {
  // Work of a drafter that nobody uses for long belongs to no single round. It is an observation of
  // its own, so that it does not count as the price of a round that comes much later.
  constexpr double kMostOfRound = 8;
  plain_tokens_ += plain_tokens;
  pending_ += plain_tokens;
  if (pending_ <= kMostOfRound) return;
  plain_squared_ += pending_ * pending_;
  pending_ = 0;
}

GainSums GainSums::Since(const GainSums& before) const {
  GainSums sums = *this;
  sums.num_drafts_ -= before.num_drafts_;
  sums.tokens_ -= before.tokens_;
  sums.plain_tokens_ -= before.plain_tokens_;
  sums.tokens_squared_ -= before.tokens_squared_;
  sums.plain_squared_ -= before.plain_squared_;
  sums.products_ -= before.products_;
  return sums;
}

std::optional<DrafterGain> GainSums::gain() const {
  if (num_drafts_ < kLeastDrafts || plain_tokens_ <= 0) return std::nullopt;
  const double ratio = tokens_ / plain_tokens_;
  const double squares =
      std::max(0.0, tokens_squared_ - 2 * ratio * products_ + ratio * ratio * plain_squared_);
  const auto count = static_cast<double>(num_drafts_);
  return DrafterGain{ratio, 1.96 * std::sqrt(squares * count / (count - 1)) / plain_tokens_};
}

}  // namespace tandem
