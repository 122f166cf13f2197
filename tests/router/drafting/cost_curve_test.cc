#include "services/router/drafting/costs/cost_curve.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "services/router/drafting/costs/draft_costs.h"

namespace tandem {
namespace {

class CostCurveTest : public testing::Test {
 protected:
  void Measure(uint32_t rows, double seconds, double noise = 0.1) {
    curve_.Age();
    curve_.Observe(rows, seconds * std::exp(noise * normal_(generator_)));
  }

  std::mt19937_64 generator_{3};
  std::normal_distribution<double> normal_;
  CostCurve curve_{24, 0.6};
};

TEST_F(CostCurveTest, FindsACurveFromNoisyMeasurements) {
  const auto seconds = [](double rows) { return std::max(2e-3, 0.2e-3 * rows); };
  for (int i = 0; i < 100; ++i) {
    for (uint32_t rows : {1u, 4u, 8u, 16u, 40u}) Measure(rows, seconds(rows));
  }
  for (uint32_t rows : {1u, 4u, 8u, 16u, 40u}) {
    EXPECT_NEAR(curve_.Seconds(rows) / seconds(rows), 1, 0.1) << rows;
  }
  EXPECT_NEAR(curve_.Seconds(28) / seconds(28), 1, 0.2);  // between measured numbers of rows
}

TEST_F(CostCurveTest, TablesAreAsFarApartAsTheRowsThatDifferMost) {
  Measure(4, 1e-3, 0);
  const CostTable before = curve_.table();
  EXPECT_EQ(before.Distance(before), 0);
  for (int i = 0; i < 50; ++i) Measure(4, 2e-3, 0);
  const double ratio = curve_.Seconds(4) / before.Seconds(4);
  EXPECT_GT(ratio, 1.9);
  EXPECT_GE(before.Distance(curve_.table()), std::log(ratio));
  EXPECT_DOUBLE_EQ(before.Distance(curve_.table()), curve_.table().Distance(before));
  EXPECT_LE(before.Distance(curve_.table()), std::log(ratio) + 0.3);
}

TEST_F(CostCurveTest, SeparatesTheCostOfAttendingFromThatOfRows) {
  for (const double each : {0.0, 3e-9, 2e-7}) {
    CostCurve curve(24, 0.6);
    const auto seconds = [&](uint32_t rows, double context) {
      return 1e-3 + 20e-6 * rows + each * rows * context;
    };
    for (int request = 0; request < 10; ++request) {
      for (int context = 20; context < 400; context += 2) {
        curve.Age();
        curve.Observe(32, seconds(32, context) * std::exp(0.05 * normal_(generator_)), 1,
                      32.0 * context);
      }
    }
    for (const double context : {20.0, 200.0, 400.0}) {
      EXPECT_NEAR(
          (curve.Seconds(32) + 32 * context * curve.SecondsAttended()) / seconds(32, context), 1,
          0.1)
          << each << " s, context " << context;
    }
  }
}

TEST_F(CostCurveTest, NeverFallsWithMoreRows) {
  for (int i = 0; i < 200; ++i) {
    Measure(1 + static_cast<uint32_t>(generator_() % 40), 1e-3, 0.5);
    for (uint32_t rows = 1; rows < 2000; ++rows) {
      ASSERT_LE(curve_.Seconds(rows), curve_.Seconds(rows + 1) * (1 + 1e-12)) << rows;
    }
  }
}

TEST_F(CostCurveTest, NoRowsCostNothingAndEachFurtherRowCostsItsShare) {
  for (int i = 0; i < 20; ++i) Measure(1024, 1);
  EXPECT_EQ(curve_.Seconds(0), 0);
  EXPECT_NEAR(curve_.Seconds(4096) / curve_.Seconds(1024), 4, 1e-9);
}

TEST_F(CostCurveTest, ASpikeMovesTheCurveLittle) {
  for (int i = 0; i < 50; ++i) Measure(4, 1e-3);
  const double before = curve_.Seconds(4);
  curve_.Observe(4, 50e-3);
  EXPECT_NEAR(curve_.Seconds(4), before, 1e-3 * before);
}

TEST_F(CostCurveTest, TheTimeOfASpikeIsGivenOnceAndDoesNotCount) {
  for (int i = 0; i < 50; ++i) EXPECT_EQ(curve_.Observe(4, 1e-3), 0);
  const uint64_t before = curve_.num_observations();
  EXPECT_EQ(curve_.Observe(4, 11e-3), 0) << "it may be a new level";
  EXPECT_EQ(curve_.num_observations(), before);
  EXPECT_NEAR(curve_.Observe(4, 1e-3), 10e-3, 0.1e-3);
  EXPECT_EQ(curve_.Observe(4, 1e-3), 0);
  EXPECT_EQ(curve_.num_new_levels(), 0);
}

TEST_F(CostCurveTest, TheTimeOfASpikeIsGivenAlsoIfNothingIsMeasuredForLong) {
  for (int i = 0; i < 50; ++i) curve_.Observe(4, 1e-3);
  curve_.Observe(4, 11e-3);
  for (int round = 0; round < 100; ++round) curve_.Age();
  EXPECT_NEAR(curve_.Observe(4, 1e-3), 10e-3, 0.1e-3);
}

TEST_F(CostCurveTest, AJumpAtSomeRowsIsFollowedWhileOtherRowsCostTheSame) {
  for (int i = 0; i < 50; ++i) {
    Measure(1, 1e-3);
    Measure(8, 2e-3);
  }
  for (int i = 0; i < 30; ++i) {
    Measure(1, 1e-3);
    Measure(8, 10e-3);
  }
  EXPECT_NEAR(curve_.Seconds(8) / 10e-3, 1, 0.2);
  EXPECT_NEAR(curve_.Seconds(1) / 1e-3, 1, 0.2);
}

TEST_F(CostCurveTest, NoTimeIsNoMeasurement) {
  for (int i = 0; i < 50; ++i) Measure(4, 1e-3);
  const double before = curve_.Seconds(4);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(curve_.Observe(4, 0), 0);
  EXPECT_EQ(curve_.Seconds(4), before);
}

TEST_F(CostCurveTest, AJumpIsFollowedWithinAFewMeasurements) {
  for (int i = 0; i < 50; ++i) Measure(4, 1e-3);
  for (int i = 0; i < 5; ++i) Measure(4, 5e-3);
  EXPECT_NEAR(curve_.Seconds(4) / 5e-3, 1, 0.25);
  // Numbers of rows that were not measured since move too, and count as uncertain.
  EXPECT_GT(curve_.Seconds(8), 4e-3);
  EXPECT_GT(curve_.Error(1), 0.1);
}

TEST_F(CostCurveTest, ADriftAtOneNumberOfRowsMovesTheOthers) {
  for (int i = 0; i < 50; ++i) {
    Measure(1, 1e-3, 0.05);
    Measure(8, 2e-3, 0.05);
  }
  for (int i = 0; i < 300; ++i) Measure(8, 2e-3 * (1 + i / 300.0), 0.05);
  EXPECT_NEAR(curve_.Seconds(8) / 4e-3, 1, 0.1);
  EXPECT_GT(curve_.Seconds(1), 1.4e-3);
}

TEST_F(CostCurveTest, ErrorsShrinkAtMeasuredRowsAndGrowWithAge) {
  const double at_first = curve_.Error(4);
  for (int i = 0; i < 20; ++i) Measure(4, 1e-3);
  const double measured = curve_.Error(4);
  EXPECT_LT(measured, 0.1);
  EXPECT_LT(measured, at_first);
  EXPECT_LT(measured, curve_.Error(64));
  for (int round = 0; round < 500; ++round) curve_.Age();
  EXPECT_GT(curve_.Error(4), 2 * measured);
  EXPECT_LT(curve_.Optimistic(2).Seconds(4), 0.5 * curve_.Seconds(4));
}

TEST_F(CostCurveTest, LearnsFromSumsOfPasses) {
  // The first pass has 16 rows, and later passes have ever fewer slots.
  const auto seconds = [](double rows) { return 1e-3 + 0.1e-3 * rows; };
  for (int i = 0; i < 200; ++i) {
    for (const std::vector<uint32_t>& passes :
         {std::vector<uint32_t>{16, 8, 4, 1}, {8, 8}, {4, 1, 1}, {1}}) {
      double sum = 0;
      for (uint32_t rows : passes) sum += seconds(rows);
      curve_.Age();
      curve_.Observe(passes, sum * std::exp(0.05 * normal_(generator_)));
    }
  }
  for (uint32_t rows : {1u, 4u, 8u, 16u}) {
    EXPECT_NEAR(curve_.Seconds(rows) / seconds(rows), 1, 0.15) << rows;
  }
}

// The machine is slow for a few passes, and fast again. Meanwhile drafts no longer pay, so that
// only passes of one and two rows are measured afterwards. If passes of more rows stayed dear,
// drafts would not pay for long.
TEST_F(CostCurveTest, AfterASlowMomentRowsThatAreNotMeasuredAreCheapAgain) {
  constexpr int kRuns = 40;
  double error_of_one = 0;
  double excess_of_five = 0;
  for (int run = 0; run < kRuns; ++run) {
    CostCurve curve(24, 0.6);
    double context = 50;
    double slowness = 1;
    const auto seconds = [&](uint32_t rows) {
      return slowness * (1.4e-3 + 0.1e-3 * rows + rows * context * 1e-7);
    };
    const auto measure = [&](uint32_t rows) {
      curve.Age();
      context += 2;
      curve.Observe(rows, seconds(rows) * std::exp(0.04 * normal_(generator_)), 1, rows * context);
    };
    const auto expected = [&](uint32_t rows) {
      return curve.Seconds(rows) + rows * context * curve.SecondsAttended();
    };
    for (uint32_t i = 0; i < 160; ++i) measure(i % 16 < 2 ? 1 : 2 + i % 4);
    EXPECT_NEAR(expected(5) / seconds(5), 1, 0.3);
    slowness = 1.6;
    for (int i = 0; i < 8; ++i) measure(4);
    EXPECT_NEAR(expected(4) / seconds(4), 1, 0.2) << "the slow moment is noticed";
    slowness = 1;
    for (int i = 0; i < 10; ++i) measure(2);
    for (int i = 0; i < 20; ++i) measure(1);
    error_of_one += std::abs(expected(1) / seconds(1) - 1) / kRuns;
    excess_of_five += (expected(5) / seconds(5) - 1) / kRuns;
  }
  EXPECT_LT(error_of_one, 0.1);
  EXPECT_LT(excess_of_five, 0.25);  // 0.9 if a new level says nothing of other rows
}

TEST(DraftCostsTest, SplitsAProposeIntoItsPasses) {
  DraftCosts costs;
  const std::vector<uint32_t> lengths = {4, 2, 0};
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(costs.measured(), i >= 3);
    ProposeCost propose;
    propose.draft_lengths = lengths;
    propose.catch_up_rows = 100;
    propose.catch_up_seconds = 10e-3;
    propose.compute_seconds = 10e-3 + 3 * 1e-3;  // two slots, then one, then one
    propose.overhead_seconds = 0.5e-3;
    costs.ObservePropose(propose);
    VerifyCost verify;
    verify.rows = 9;
    verify.compute_seconds = 4e-3;
    verify.overhead_seconds = 1e-3;
    costs.ObserveVerify(verify);
    costs.Age();
  }
  const RoundCosts round = costs.Expected();
  EXPECT_NEAR(round.pass.Seconds(100) / 10e-3, 1, 0.1);
  EXPECT_NEAR(round.pass.Seconds(1) / 1e-3, 1, 0.2);
  EXPECT_NEAR(round.pass.Seconds(2) / 1e-3, 1, 0.2);
  EXPECT_NEAR(round.propose_overhead.Seconds(6) / 0.5e-3, 1, 0.1);
  EXPECT_NEAR((round.verify.Seconds(9) + round.verify_overhead.Seconds(9)) / 5e-3, 1, 0.1);
}

TEST(DraftCostsTest, PassesCountAsTheWorkerStatesThem) {
  DraftCosts costs;
  const std::vector<uint32_t> lengths = {8};
  for (int i = 0; i < 50; ++i) {
    // The worker guessed: one pass of five rows, and one of three, for eight draft tokens.
    const std::vector<uint32_t> rows = {5, 3};
    ProposeCost propose;
    propose.draft_lengths = lengths;
    propose.catch_up_rows = 1;
    propose.pass_rows = rows;
    propose.catch_up_seconds = 2e-3;
    propose.compute_seconds = 3.5e-3;
    propose.overhead_seconds = 0.5e-3;
    costs.ObservePropose(propose);
    costs.Age();
  }
  const RoundCosts round = costs.Expected();
  EXPECT_NEAR(round.pass.Seconds(5) / 2e-3, 1, 0.1);
  EXPECT_NEAR(round.pass.Seconds(3) / 1.5e-3, 1, 0.1);
}

}  // namespace
}  // namespace tandem
