// Sums over the reports of completions, and the rates that follow from the sums.
#ifndef TANDEM_SERVICES_CLI_BENCH_RUN_TOTALS_H_
#define TANDEM_SERVICES_CLI_BENCH_RUN_TOTALS_H_

#include <cstdint>
#include <vector>

#include "tandem/v1/generate.pb.h"

namespace tandem::cli {

// Seconds of the decoding loop from the first token to the last, split by stage.
struct TimeSplit {
  double draft = 0;
  double transfer = 0;
  double verify = 0;
  double router = 0;

  double Total() const { return draft + transfer + verify + router; }
};

// A rate is 0 if nothing was counted for it.
class RunTotals {
 public:
  void Add(const v1::Completion& completion);

  int64_t tokens() const { return tokens_; }
  // All numbers below leave out the first token of each run, which comes from prefill.
  int64_t draft_rounds() const { return draft_rounds_; }
  // A token that was neither accepted nor added by a round with a draft came from a plain round.
  int64_t plain_rounds() const;
  // Number of passes of the target.
  int64_t rounds() const { return draft_rounds_ + plain_rounds(); }
  int64_t drafted() const { return drafted_; }
  int64_t accepted() const { return accepted_; }
  int64_t tested() const { return tested_; }
  const TimeSplit& seconds() const { return seconds_; }

  double TokensPerSecond() const;
  double TokensPerPass() const;
  // accepted / drafted: dashboards call this number the acceptance rate. It falls as the draft
  // length grows.
  double AcceptanceRate() const;
  // accepted / tested: estimates E[sum of min(p, q)]. It does not depend on the draft length.
  double Alpha() const;
  // accepted / tested for each position of a block.
  std::vector<double> AlphaPerPosition() const;

 private:
  int64_t tokens_ = 0;
  int64_t decoded_tokens_ = 0;
  int64_t draft_rounds_ = 0;
  int64_t drafted_ = 0;
  int64_t accepted_ = 0;
  int64_t tested_ = 0;
  std::vector<int64_t> accepted_per_position_;
  std::vector<int64_t> tested_per_position_;
  double decode_seconds_ = 0;
  TimeSplit seconds_;
};

// Returns the rate of one run.
double TokensPerSecond(const v1::Completion& completion);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_BENCH_RUN_TOTALS_H_
