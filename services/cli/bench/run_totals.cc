#include "services/cli/bench/run_totals.h"

#include <algorithm>

#include "services/cli/bench/share.h"

namespace tandem::cli {

namespace {

void AddEach(std::vector<int64_t>& sums, const google::protobuf::RepeatedField<int32_t>& values) {
  sums.resize(std::max<size_t>(sums.size(), values.size()));
  for (int i = 0; i < values.size(); ++i) sums[i] += values[i];
}

}  // namespace

void RunTotals::Add(const v1::Completion& completion) {
  const v1::SpeculationStats& speculation = completion.speculation();
  const v1::Timings& timings = completion.timings();
  tokens_ += completion.usage().completion_tokens();
  decoded_tokens_ += std::max(0, completion.usage().completion_tokens() - 1);
  draft_rounds_ += speculation.num_drafts();
  drafted_ += speculation.num_draft_tokens();
  accepted_ += speculation.num_accepted_tokens();
  tested_ += speculation.num_tested_tokens();
  AddEach(accepted_per_position_, speculation.num_accepted_tokens_per_position());
  AddEach(tested_per_position_, speculation.num_tested_tokens_per_position());
  decode_seconds_ += timings.decode_seconds();
  seconds_.draft += timings.draft_seconds();
  seconds_.transfer += timings.transfer_seconds();
  seconds_.verify += timings.verify_seconds();
  seconds_.router += timings.router_seconds();
}

int64_t RunTotals::plain_rounds() const {
  return std::max<int64_t>(0, decoded_tokens_ - accepted_ - draft_rounds_);
}

double RunTotals::TokensPerSecond() const {
  return Share(static_cast<double>(decoded_tokens_), decode_seconds_);
}

double RunTotals::TokensPerPass() const {
  return Share(static_cast<double>(decoded_tokens_), static_cast<double>(rounds()));
}

double RunTotals::AcceptanceRate() const {
  return Share(static_cast<double>(accepted_), static_cast<double>(drafted_));
}

double RunTotals::Alpha() const {
  return Share(static_cast<double>(accepted_), static_cast<double>(tested_));
}

std::vector<double> RunTotals::AlphaPerPosition() const {
  std::vector<double> alphas;
  for (size_t i = 0; i < tested_per_position_.size(); ++i) {
    const int64_t accepted = i < accepted_per_position_.size() ? accepted_per_position_[i] : 0;
    alphas.push_back(
        Share(static_cast<double>(accepted), static_cast<double>(tested_per_position_[i])));
  }
  return alphas;
}

double TokensPerSecond(const v1::Completion& completion) {
  RunTotals totals;
  totals.Add(completion);
  return totals.TokensPerSecond();
}

}  // namespace tandem::cli
