#include "services/router/drafting/roster/speed_comparison.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>

namespace tandem {
namespace {

TEST(SpeedComparisonTest, ARatioNeedsFiveRequestsOfEachKind) {
  SpeedComparison comparison;
  for (int i = 0; i < 5; ++i) {
    EXPECT_FALSE(comparison.Ratio().has_value());
    comparison.Add(DraftArm::kCanary, 0.01);
    comparison.Add(DraftArm::kServing, 0.02);
  }
  ASSERT_TRUE(comparison.Ratio().has_value());
  EXPECT_NEAR(comparison.Ratio()->ratio, 2, 1e-12);
  EXPECT_NEAR(comparison.Ratio()->low, 2, 1e-12);
  EXPECT_NEAR(comparison.Ratio()->high, 2, 1e-12);
  EXPECT_EQ(comparison.num_requests(DraftArm::kCanary), 5U);
}

TEST(SpeedComparisonTest, OtherRequestsAndNoTimesCountForNothing) {
  SpeedComparison comparison;
  comparison.Add(DraftArm::kNone, 0.01);
  comparison.Add(DraftArm::kCanary, 0);
  comparison.Add(DraftArm::kServing, -1);
  comparison.Add(DraftArm::kServing, std::nan(""));
  EXPECT_EQ(comparison.num_requests(DraftArm::kCanary), 0U);
  EXPECT_EQ(comparison.num_requests(DraftArm::kServing), 0U);
}

// A worked example of Welch's interval: logarithms 1 … 5 and 2, 4, 6, 8, 10.
TEST(SpeedComparisonTest, TheIntervalIsWelchs) {
  SpeedComparison comparison;
  for (int i = 1; i <= 5; ++i) {
    comparison.Add(DraftArm::kCanary, std::exp(i));
    comparison.Add(DraftArm::kServing, std::exp(2 * i));
  }
  // Means 3 and 6, variances 2.5 and 10: standard error sqrt(2.5), 5.882 degrees of freedom, and
  // t = 2.4590.
  const SpeedRatio ratio = *comparison.Ratio();
  EXPECT_NEAR(std::log(ratio.ratio), 3, 1e-9);
  EXPECT_NEAR(std::log(ratio.low), 3 - 2.4590 * std::sqrt(2.5), 2e-3);
  EXPECT_NEAR(std::log(ratio.high), 3 + 2.4590 * std::sqrt(2.5), 2e-3);
}

TEST(SpeedComparisonTest, SumsOfPodsAreTheWhole) {
  std::mt19937 random(1);
  std::lognormal_distribution<double> seconds(-4, 0.3);
  SpeedComparison whole;
  SpeedComparison pods[3];
  for (int i = 0; i < 300; ++i) {
    const DraftArm arm = i % 4 == 0 ? DraftArm::kCanary : DraftArm::kServing;
    const double value = seconds(random);
    whole.Add(arm, value);
    pods[i % 3].Add(arm, value);
  }
  SpeedComparison sum;
  for (const SpeedComparison& pod : pods) sum += pod;
  EXPECT_NEAR(sum.Ratio()->ratio, whole.Ratio()->ratio, 1e-9);
  EXPECT_NEAR(sum.Ratio()->low, whole.Ratio()->low, 1e-9);
  EXPECT_NEAR(sum.Ratio()->high, whole.Ratio()->high, 1e-9);
}

// The interval has the true ratio about as often as it says, and a planted difference is seen.
TEST(SpeedComparisonTest, TheIntervalHoldsAndSeesADifference) {
  std::mt19937 random(2);
  std::lognormal_distribution<double> serving(-4, 0.2);
  std::lognormal_distribution<double> same(-4, 0.4);
  std::lognormal_distribution<double> faster(-4.2, 0.2);
  int num_holding = 0;
  int num_seen = 0;
  constexpr int kRuns = 2000;
  for (int run = 0; run < kRuns; ++run) {
    SpeedComparison equal;
    SpeedComparison different;
    for (int i = 0; i < 40; ++i) {
      equal.Add(DraftArm::kServing, serving(random));
      different.Add(DraftArm::kServing, serving(random));
      if (i % 2 == 0) equal.Add(DraftArm::kCanary, same(random));
      if (i % 2 == 0) different.Add(DraftArm::kCanary, faster(random));
    }
    num_holding += equal.Ratio()->low <= 1 && equal.Ratio()->high >= 1 ? 1 : 0;
    num_seen += different.Ratio()->low > 1 ? 1 : 0;
  }
  EXPECT_GT(num_holding, 0.93 * kRuns);
  EXPECT_LT(num_holding, 0.97 * kRuns);
  EXPECT_GT(num_seen, 0.9 * kRuns);
}

}  // namespace
}  // namespace tandem
