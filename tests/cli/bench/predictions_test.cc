#include "services/cli/bench/predictions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace tandem::cli {
namespace {

using ::testing::DoubleNear;

TEST(PredictionsTest, ExpectedTokensAreThoseOfThePaper) {
  EXPECT_THAT(ExpectedTokensPerRound(0.5, 5), DoubleNear(1.97, 0.005));
  EXPECT_THAT(ExpectedTokensPerRound(0.7, 5), DoubleNear(2.94, 0.005));
  EXPECT_THAT(ExpectedTokensPerRound(0.85, 5), DoubleNear(4.15, 0.005));
  EXPECT_THAT(ExpectedTokensPerRound(0.95, 5), DoubleNear(5.30, 0.005));
}

TEST(PredictionsTest, ExpectedTokensEqualTheClosedForm) {
  for (double alpha : {0.01, 0.3, 0.62, 0.99}) {
    for (int gamma = 0; gamma <= 16; ++gamma) {
      EXPECT_THAT(ExpectedTokensPerRound(alpha, gamma),
                  DoubleNear((1 - std::pow(alpha, gamma + 1)) / (1 - alpha), 1e-9));
    }
  }
}

TEST(PredictionsTest, AcceptingNothingAndAcceptingEverythingAreTheLimits) {
  EXPECT_EQ(ExpectedTokensPerRound(0, 8), 1);
  EXPECT_EQ(ExpectedTokensPerRound(1, 8), 9);
  EXPECT_EQ(ExpectedTokensPerRound(0.8, 0), 1);
}

TEST(PredictionsTest, AFreeDrafterSpeedsUpByTheTokensOfARound) {
  EXPECT_EQ(PredictedSpeedup(0.7, 5, 0.0), ExpectedTokensPerRound(0.7, 5));
  EXPECT_EQ(PredictedSpeedup(0.7, 0, 0.4), 1);
}

TEST(PredictionsTest, AnExpensiveDrafterGainsOnlyALittle) {
  // With c = 0.4 and alpha = 0.8 (a 1B draft for a 3B target), two draft tokens give a speedup of
  // 1.36. One or three give less.
  EXPECT_THAT(PredictedSpeedup(0.8, 2, 0.4), DoubleNear(1.3556, 1e-4));
  EXPECT_LT(PredictedSpeedup(0.8, 1, 0.4), PredictedSpeedup(0.8, 2, 0.4));
  EXPECT_LT(PredictedSpeedup(0.8, 3, 0.4), PredictedSpeedup(0.8, 2, 0.4));
  EXPECT_LT(PredictedSpeedup(0.1, 1, 0.4), 1);
}

TEST(PredictionsTest, OperationsGrowWithRejectedTokens) {
  // Theorem 3.11 in closed form.
  const double alpha = 0.7;
  const double c_hat = 0.15;
  EXPECT_THAT(OperationsFactor(alpha, 5, c_hat),
              DoubleNear((1 - alpha) * (5 * c_hat + 5 + 1) / (1 - std::pow(alpha, 6)), 1e-12));
  EXPECT_THAT(OperationsFactor(1, 4, 0.0), DoubleNear(1, 1e-12));
}

TEST(PredictionsTest, MeasuredCostsReduceToTheTheoremIfItsAssumptionsHold) {
  const RoundCosts ideal = {
      .plain_round = 0.010, .draft_step = 0.001, .verify_round = 0.010, .round_overhead = 0};
  EXPECT_THAT(PredictedSpeedup(0.8, 4, ideal), DoubleNear(PredictedSpeedup(0.8, 4, 0.1), 1e-12));
  RoundCosts real = ideal;
  real.verify_round = 0.015;
  real.round_overhead = 0.001;
  EXPECT_THAT(PredictedSpeedup(0.8, 4, real),
              DoubleNear(ExpectedTokensPerRound(0.8, 4) * 0.010 / 0.020, 1e-12));
}

TEST(MeanRatioTest, IsTheGeometricMeanWithStudentsInterval) {
  // The logarithms are ln2 -+ 1: mean ln2, standard deviation 1, standard error 1/sqrt(3). t(2,
  // 0.975) = 4.302653.
  const double e = std::exp(1.0);
  const RatioInterval interval = MeanRatio({2 / e, 2, 2 * e});
  EXPECT_THAT(interval.ratio, DoubleNear(2, 1e-9));
  EXPECT_THAT(std::log(interval.high / 2), DoubleNear(4.302653 / std::sqrt(3.0), 1e-5));
  EXPECT_THAT(std::log(2 / interval.low), DoubleNear(4.302653 / std::sqrt(3.0), 1e-5));
  EXPECT_EQ(interval.pairs, 3);
}

TEST(MeanRatioTest, OnePairHasNoInterval) {
  const RatioInterval interval = MeanRatio({1.5});
  EXPECT_DOUBLE_EQ(interval.ratio, 1.5);
  EXPECT_EQ(interval.low, interval.high);
  EXPECT_EQ(MeanRatio({}).pairs, 0);
}

}  // namespace
}  // namespace tandem::cli
