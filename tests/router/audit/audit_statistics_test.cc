#include "services/router/audit/audit_statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>

namespace tandem::audit_statistics_test {
namespace {

double UniformFrom(std::mt19937_64& random) {
  return static_cast<double>(random() >> 11) * 0x1p-53;
}

// Returns a sample of a position whose most likely token has the probability `mode_prob` in the
// target, and is drawn with probability `hit_prob`.
double ExcessFrom(double mode_prob, double hit_prob, std::mt19937_64& random) {
  return (UniformFrom(random) < hit_prob ? 1 : 0) - mode_prob;
}

TEST(UniformityStatisticTest, EvidenceIsTheLikelihoodRatioAveragedOverConcentrations) {
  UniformityStatistic statistic;
  EXPECT_EQ(statistic.log_evidence(), 0);
  EXPECT_EQ(statistic.z(), 0);
  for (int i = 0; i < 3; ++i) statistic.Add(0.01);
  statistic.Add(0.99);
  // With concentration a, the ratios are 1, (a + 1)/(a + 1/16), (a + 2)/(a + 2/16), a/(a + 3/16).
  double mean = 0;
  double a = 1;
  for (int i = 0; i < 8; ++i, a *= 8) {
    mean += (a + 1) / (a + 1.0 / 16) * (a + 2) / (a + 2.0 / 16) * a / (a + 3.0 / 16) / 8;
  }
  EXPECT_NEAR(statistic.log_evidence(), std::log(mean), 1e-12);
}

TEST(UniformityStatisticTest, ZIsPearsonsChiSquareTransformedToANormalVariable) {
  UniformityStatistic statistic;
  for (int i = 0; i < 1600; ++i) statistic.Add((i % 16 + 0.5) / 16);
  EXPECT_NEAR(statistic.z(), -8.09, 0.01) << "more even than chance";
  for (int i = 0; i < 60; ++i) statistic.Add(0.5);
  // There are 15 bins with 100 samples and one with 160; 103.75 are expected in each. Chi-square is
  // 32.53. Its upper tail with 15 degrees of freedom is 0.0054, so z is 2.55.
  EXPECT_NEAR(statistic.z(), 2.55, 0.02);
}

TEST(DraftModeStatisticTest, ASureOutcomeAddsNothing) {
  DraftModeStatistic statistic;
  for (int i = 0; i < 1000; ++i) statistic.Add(0);
  EXPECT_EQ(statistic.log_evidence(), 0);
  EXPECT_EQ(statistic.z(), 0);
}

TEST(DraftModeStatisticTest, ZIsTheSumOverItsStandardDeviation) {
  DraftModeStatistic statistic;
  statistic.Add(0.75);   // a hit with probability 1/4
  statistic.Add(-0.5);   // a miss with probability 1/2
  statistic.Add(-0.25);  // a miss with probability 1/4
  EXPECT_NEAR(statistic.z(), 0 / std::sqrt(0.1875 + 0.25 + 0.1875), 1e-12);
  statistic.Add(0.5);
  EXPECT_NEAR(statistic.z(), 0.5 / std::sqrt(0.1875 + 0.25 + 0.1875 + 0.25), 1e-12);
}

TEST(DraftModeStatisticTest, EvidenceHasMeanOneExactly) {
  // Adds both outcomes of one sample, weighted by their probabilities.
  for (const double mode_prob : {1e-12, 0.001, 0.3, 0.5, 0.97}) {
    DraftModeStatistic hit;
    DraftModeStatistic miss;
    hit.Add(1 - mode_prob);
    miss.Add(-mode_prob);
    EXPECT_NEAR(
        mode_prob * std::exp(hit.log_evidence()) + (1 - mode_prob) * std::exp(miss.log_evidence()),
        1, 1e-9)
        << mode_prob;
  }
}

// The bound holds for every level. The level here is 1/100, so that a test can show it. If kStreams
// streams are watched at every sample, at most one in a hundred may ever exceed its limit. Six
// standard deviations more are allowed, so the test fails falsely with probability 1e-9.
constexpr int kStreams = 3000;
constexpr int kSamples = 2000;
constexpr double kMostPasses = kStreams / 100.0 + 6 * 5.45;

TEST(UniformityStatisticTest, RarelyExceedsItsLimitWhenWatchedAllTheTimeAndZIsAboutNormal) {
  std::mt19937_64 random(1);
  int passes = 0;
  double sum = 0;
  double sum_of_squares = 0;
  for (int stream = 0; stream < kStreams; ++stream) {
    UniformityStatistic statistic;
    bool passed = false;
    for (int i = 0; i < kSamples; ++i) {
      statistic.Add(UniformFrom(random));
      passed = passed || statistic.log_evidence() >= std::log(100.0);
    }
    passes += passed ? 1 : 0;
    sum += statistic.z();
    sum_of_squares += statistic.z() * statistic.z();
  }
  EXPECT_LE(passes, kMostPasses);
  EXPECT_NEAR(sum / kStreams, 0, 0.11);
  EXPECT_NEAR(sum_of_squares / kStreams, 1, 0.16);
}

TEST(DraftModeStatisticTest, RarelyExceedsItsLimitWhenWatchedAllTheTimeAndZIsAboutNormal) {
  std::mt19937_64 random(2);
  int passes = 0;
  double sum = 0;
  double sum_of_squares = 0;
  for (int stream = 0; stream < kStreams; ++stream) {
    DraftModeStatistic statistic;
    bool passed = false;
    for (int i = 0; i < kSamples; ++i) {
      const double mode_prob = UniformFrom(random);
      statistic.Add(ExcessFrom(mode_prob, mode_prob, random));
      passed = passed || statistic.log_evidence() >= std::log(100.0);
    }
    passes += passed ? 1 : 0;
    sum += statistic.z();
    sum_of_squares += statistic.z() * statistic.z();
  }
  EXPECT_LE(passes, kMostPasses);
  EXPECT_NEAR(sum / kStreams, 0, 0.11);
  EXPECT_NEAR(sum_of_squares / kStreams, 1, 0.16);
}

TEST(UniformityStatisticTest, FindsAShiftOfMassThatKeepsTheMean) {
  std::mt19937_64 random(3);
  UniformityStatistic statistic;
  // One token in ten comes only from the outer quarters.
  for (int i = 0; i < 20000; ++i) {
    const double u = UniformFrom(random);
    const double outer = u < 0.5 ? u / 2 : 0.5 + u / 2;
    statistic.Add(UniformFrom(random) < 0.1 ? outer : u);
  }
  EXPECT_GT(statistic.log_evidence(), std::log(1e6));
  EXPECT_GT(statistic.z(), 5);
}

TEST(DraftModeStatisticTest, FindsTwoPercentMoreOrFewerHits) {
  std::mt19937_64 random(4);
  for (const double more : {0.02, -0.02}) {
    DraftModeStatistic statistic;
    for (int i = 0; i < 50000; ++i) {
      const double mode_prob = 0.1 + 0.8 * UniformFrom(random);
      statistic.Add(ExcessFrom(mode_prob, mode_prob + more, random));
    }
    EXPECT_GT(statistic.log_evidence(), std::log(1e6));
    EXPECT_GT(statistic.z() * more, 0);
  }
}

}  // namespace
}  // namespace tandem::audit_statistics_test
