#include "services/router/drafting/costs/outlier_run.h"

#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <vector>

namespace tandem::outlier_run_test {
namespace {

constexpr double kExpected = 1e-3;
constexpr double kLimit = 0.3;

// Adds measurements of these seconds. Returns the results; each of them is an outlier.
std::vector<OutlierRun::Result> AddAll(OutlierRun& run, const std::vector<double>& seconds) {
  std::vector<OutlierRun::Result> results;
  for (const double value : seconds) {
    results.push_back(run.AddOutlier(4, std::log(value / kExpected), kLimit, kExpected));
  }
  return results;
}

// Returns the new level in seconds after these measurements, which is new only with the last one.
double LevelAfter(const std::vector<double>& seconds) {
  OutlierRun run;
  const std::vector<OutlierRun::Result> results = AddAll(run, seconds);
  for (const OutlierRun::Result& result : std::span(results).first(results.size() - 1)) {
    EXPECT_EQ(result.new_level, 0);
    EXPECT_EQ(result.interrupted_seconds, 0);
  }
  EXPECT_EQ(run.End().interrupted_seconds, 0) << "measurements of a new level are no interruptions";
  return results.back().new_level == 0 ? 0 : kExpected * std::exp(results.back().new_level);
}

TEST(OutlierRunTest, TwoBelowTheExpectedCostAreANewLevel) {
  EXPECT_NEAR(LevelAfter({0.2e-3, 0.5e-3}), 0.5e-3, 1e-9);
}

TEST(OutlierRunTest, FourAboveItThatAgreeAreANewLevel) {
  EXPECT_NEAR(LevelAfter({5e-3, 5.5e-3, 4.5e-3, 6e-3}), 4.5e-3, 1e-9);
}

TEST(OutlierRunTest, TwelveAboveItThatDifferAreANewLevel) {
  EXPECT_NEAR(LevelAfter({2e-3, 9e-3, 3e-3, 8e-3, 2e-3, 9e-3, 3e-3, 8e-3, 2e-3, 9e-3, 3e-3, 8e-3}),
              2e-3, 1e-9);
}

TEST(OutlierRunTest, OthersWereInterruptionsOnceTheRunEnds) {
  OutlierRun run;
  for (const OutlierRun::Result& result : AddAll(run, {2e-3, 9e-3, 3e-3, 8e-3})) {
    EXPECT_EQ(result.new_level, 0);
    EXPECT_EQ(result.interrupted_seconds, 0);
  }
  EXPECT_NEAR(run.End().interrupted_seconds, 18e-3, 1e-9);
  EXPECT_EQ(run.End().interrupted_seconds, 0);
}

TEST(OutlierRunTest, AMeasurementInTheOtherDirectionEndsARun) {
  OutlierRun run;
  const std::vector<OutlierRun::Result> results = AddAll(run, {4e-3, 0.3e-3, 4e-3, 0.3e-3});
  EXPECT_NEAR(results[1].interrupted_seconds, 3e-3, 1e-9);
  EXPECT_EQ(results[2].interrupted_seconds, 0) << "nothing below the expected cost interrupts";
  EXPECT_NEAR(results[3].interrupted_seconds, 3e-3, 1e-9);
  EXPECT_EQ(results[3].new_level, 0) << "the two below were not consecutive";
}

TEST(OutlierRunTest, OnlyAMeasurementOfTheSameRowsEndsARun) {
  OutlierRun run;
  AddAll(run, {5e-3, 5e-3, 5e-3});
  EXPECT_EQ(run.AddExpected(1).interrupted_seconds, 0);
  EXPECT_NE(run.AddOutlier(5, std::log(5.0), kLimit, kExpected).new_level, 0);
  AddAll(run, {5e-3, 5e-3, 5e-3});
  EXPECT_NEAR(run.AddExpected(4).interrupted_seconds, 12e-3, 1e-9);
  EXPECT_EQ(run.AddOutlier(4, std::log(5.0), kLimit, kExpected).new_level, 0);
}

TEST(OutlierRunTest, AStoppedMachineCountsLittle) {
  OutlierRun run;
  AddAll(run, {10.0});
  EXPECT_NEAR(run.End().interrupted_seconds, 20 * kExpected + 0.02, 1e-9);
}

}  // namespace
}  // namespace tandem::outlier_run_test
