// Theoretical predictions for speculative decoding, which are shown beside measurements. Source:
// Leviathan, Kalman, Matias 2023, "Fast Inference from Transformers via Speculative Decoding".
#ifndef TANDEM_SERVICES_CLI_BENCH_PREDICTIONS_H_
#define TANDEM_SERVICES_CLI_BENCH_PREDICTIONS_H_

#include <vector>

namespace tandem::cli {

// alpha: probability that a tested draft token is accepted, in [0, 1]. gamma: number of draft
// tokens in a round, >= 0. cost_ratio (c): time of one drafter step divided by the time of one
// plain target step.

// Equation 1: (1 - alpha^(gamma+1)) / (1 - alpha), which is gamma + 1 at alpha = 1.
double ExpectedTokensPerRound(double alpha, int gamma);

// Theorem 3.8: expected speedup over plain decoding in wall-clock time. Assumes that the target
// computes gamma + 1 rows in the time of one row, and that nothing else takes time.
double PredictedSpeedup(double alpha, int gamma, double cost_ratio);

// Theorem 3.11: expected factor of arithmetic operations. operations_ratio (c-hat): the drafter's
// operations per token divided by the target's.
double OperationsFactor(double alpha, int gamma, double operations_ratio);

// Measured times in seconds.
struct RoundCosts {
  double plain_round;     // a whole round of one token without a draft
  double draft_step;      // one draft token in the drafter
  double verify_round;    // gamma + 1 rows in the verifier
  double round_overhead;  // transfer and router, per round with a draft
};

// Theorem 3.8 without its assumptions: the expected tokens per round, times the time of a plain
// round, divided by the measured time of a round with gamma draft tokens.
double PredictedSpeedup(double alpha, int gamma, const RoundCosts& costs);

// A ratio with its two-sided 95% confidence interval.
struct RatioInterval {
  double ratio = 0;
  double low = 0;
  double high = 0;
  int pairs = 0;

  // Student's t interval of fewer pairs is so wide, and differs so much from run to run, that it
  // misleads. It is not shown.
  static constexpr int kLeastPairs = 5;
  bool is_shown() const { return pairs >= kLeastPairs; }
};

// Returns the geometric mean of paired ratios, and Student's t interval of their logarithms. Both
// runs of a pair see the same noise of the machine. In logarithms, twice the speed and half the
// speed weigh the same. Ratios must be > 0. With fewer than two pairs, low = high = ratio. Without
// pairs, all three are zero.
RatioInterval MeanRatio(const std::vector<double>& ratios);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_BENCH_PREDICTIONS_H_
