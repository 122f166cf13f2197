// What theory says about speculative decoding, beside which measurements are shown.
// Leviathan, Kalman, Matias 2023, "Fast Inference from Transformers via Speculative Decoding".
#ifndef TANDEM_SERVICES_CLI_BENCH_PREDICTIONS_H_
#define TANDEM_SERVICES_CLI_BENCH_PREDICTIONS_H_

#include <vector>

namespace tandem::cli {

// alpha: chance that a draft token that is tested is accepted, in [0, 1].
// gamma: draft tokens in a round, >= 0. cost_ratio (c): time of one drafter step over one plain
// target step.

// Equation 1: (1 - alpha^(gamma+1)) / (1 - alpha); gamma + 1 at alpha = 1.
double ExpectedTokensPerRound(double alpha, int gamma);

// Theorem 3.8: expected wall-clock factor over plain decoding. Assumes that gamma + 1 rows cost the
// target what one does, and that nothing else takes time.
double PredictedSpeedup(double alpha, int gamma, double cost_ratio);

// Theorem 3.11: expected factor of arithmetic operations. operations_ratio (c-hat): drafter's
// operations a token over the target's.
double OperationsFactor(double alpha, int gamma, double operations_ratio);

// The gamma in [0, max_gamma] that Theorem 3.8 likes best; the smallest when several do.
int BestDraftLength(double alpha, double cost_ratio, int max_gamma);

// Seconds, measured.
struct RoundCosts {
  double plain_round;     // one token without a draft, all of it
  double draft_step;      // one draft token in the drafter
  double verify_round;    // gamma + 1 rows in the verifier
  double round_overhead;  // transfer and router, per round with a draft
};

// Theorem 3.8 without its assumptions: expected tokens per round at their plain time, over the
// measured time of a round with gamma draft tokens.
double PredictedSpeedup(double alpha, int gamma, const RoundCosts& costs);

// A ratio with its two-sided 95 % confidence interval.
struct RatioInterval {
  double ratio = 0;
  double low = 0;
  double high = 0;
  int pairs = 0;
};

// Geometric mean of paired ratios and Student's t interval of their logarithms: pairs see the same
// noise of the machine, and a factor of two either way counts the same. Ratios must be > 0; with
// fewer than two pairs low = high = ratio. No pairs: all zero.
RatioInterval MeanRatio(const std::vector<double>& ratios);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_BENCH_PREDICTIONS_H_
