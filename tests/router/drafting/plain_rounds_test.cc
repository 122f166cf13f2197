#include "services/router/drafting/plain_rounds.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

namespace tandem {
namespace {

// Costs of workers that take `factor` times the first costs.
RoundCosts Costs(double factor) {
  DraftCosts costs;
  for (int repetition = 0; repetition < 50; ++repetition) {
    for (const uint32_t rows : {1u, 4u, 16u, 64u}) {
      const uint32_t lengths[] = {1};
      costs.ObservePropose({.draft_lengths = lengths,
                            .catch_up_rows = rows,
                            .compute_seconds = factor * 1e-3,
                            .overhead_seconds = factor * 1e-4});
      costs.ObserveVerify(
          {.rows = rows, .compute_seconds = factor * 1e-2, .overhead_seconds = factor * 1e-4});
    }
  }
  return costs.Expected();
}

class PlainRoundsTest : public testing::Test {
 protected:
  explicit PlainRoundsTest(size_t num_slots = 8) : candidates_(num_slots) {
    for (size_t i = 0; i < num_slots; ++i) {
      candidates_[i].serial = i;
      candidates_[i].limit = 8;
      candidates_[i].drafter_lack = 10;
      candidates_[i].remaining_tokens = 100;
    }
  }

  bool StillHolds(const RoundCosts& costs) {
    return rounds_.StillHolds(candidates_, batch_, costs, ValuePlainly(candidates_, batch_, costs));
  }
  void Remember(const RoundCosts& costs, double advantage) {
    rounds_.Remember(candidates_, batch_, costs, ValuePlainly(candidates_, batch_, costs),
                     advantage);
  }
  // Returns the number of rounds without a plan at costs that changed only a little. The round
  // after them is planned.
  int RoundsWithoutPlan(const RoundCosts& costs) {
    for (int round = 0; round < 100; ++round) {
      if (!StillHolds(costs)) return round;
    }
    return -1;
  }

  std::vector<DraftCandidate> candidates_;
  DraftBatch batch_;
  const RoundCosts costs_ = Costs(1);
  const RoundCosts nearly_ = Costs(1.05);
  const RoundCosts far_ = Costs(1.5);
  PlainRounds rounds_{16};
};

TEST_F(PlainRoundsTest, APlainRoundCommitsItsRowsAndTakesOnlyAVerify) {
  batch_.plain_rows = 2;
  batch_.plain_attended = 50;
  batch_.prompt_rows = 100;  // left out
  RoundCosts costs = costs_;
  costs.attended = 1e-5;
  candidates_[0].context = 150;
  const PlainValue plain = ValuePlainly(candidates_, batch_, costs);
  EXPECT_EQ(plain.value.tokens, 10);
  EXPECT_DOUBLE_EQ(plain.attending_seconds, 200 * 1e-5);
  EXPECT_DOUBLE_EQ(plain.value.seconds, costs.VerifySeconds(10, 200));
}

TEST_F(PlainRoundsTest, NothingHoldsBeforeARoundIsRemembered) { EXPECT_FALSE(StillHolds(costs_)); }

TEST_F(PlainRoundsTest, ARoundStaysValidWhileNothingChanges) {
  ASSERT_FALSE(StillHolds(costs_));
  Remember(costs_, 1);
  for (int round = 0; round < 100; ++round) ASSERT_TRUE(StillHolds(costs_));
}

TEST_F(PlainRoundsTest, CostsMayChangeByAQuarterOfTheGapToTheDrafts) {
  Remember(costs_, std::exp(4 * 0.09));
  for (int round = 0; round < 100; ++round) ASSERT_TRUE(StillHolds(nearly_));
  EXPECT_FALSE(StillHolds(far_));
}

TEST_F(PlainRoundsTest, NoAdvantageStaysValidIfCostsDouble) {
  Remember(costs_, 1e9);
  EXPECT_TRUE(StillHolds(far_));
  EXPECT_FALSE(StillHolds(Costs(2)));
}

TEST_F(PlainRoundsTest, ContextsMayGrowUntilAttendingTakesLonger) {
  RoundCosts costs = costs_;
  costs.attended = 1e-6;
  Remember(costs, std::exp(4 * 0.09));
  candidates_[0].context = 100;
  EXPECT_TRUE(StillHolds(costs));
  candidates_[0].context = 2000;
  EXPECT_FALSE(StillHolds(costs));
}

TEST_F(PlainRoundsTest, FewerRemainingTokensAndALongerLagChangeNothing) {
  Remember(costs_, 1);
  candidates_[3].limit = 4;
  candidates_[3].remaining_tokens = 5;
  candidates_[3].drafter_lack = 11;
  EXPECT_TRUE(StillHolds(costs_));
}

TEST_F(PlainRoundsTest, ChangesThatMayMakeDraftsPayEndIt) {
  const std::vector<std::function<void()>> changes = {
      [this] { candidates_[3].serial = 99; },
      [this] { candidates_[3].limit = 9; },
      [this] { candidates_[3].fixed = 0; },
      [this] { candidates_[3].drafter_lack = 9; },
      [this] { candidates_[3].remaining_tokens = 101; },
      [this] { candidates_.pop_back(); },
      [this] { batch_.plain_rows = 1; },
      [this] { batch_.prompt_rows = 1; },
      [this] { batch_.overlapped = true; },
      [this] { rounds_.Forget(); },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    const std::vector<DraftCandidate> candidates = candidates_;
    const DraftBatch batch = batch_;
    Remember(costs_, 1e9);
    changes[i]();
    EXPECT_FALSE(StillHolds(costs_)) << "change " << i;
    candidates_ = candidates;
    batch_ = batch;
    EXPECT_FALSE(StillHolds(costs_)) << "change " << i << " was forgotten";
  }
}

TEST_F(PlainRoundsTest, EachCohortHasItsOwnRound) {
  Remember(costs_, 1);
  batch_.cohort = 1;
  EXPECT_FALSE(StillHolds(costs_));
  batch_.cohort = 0;
  EXPECT_TRUE(StillHolds(costs_));
}

TEST_F(PlainRoundsTest, IfDraftsNearlyPaySmallChangesOfCostsArePlannedForLessAndLess) {
  ASSERT_FALSE(StillHolds(costs_));
  Remember(costs_, 1);
  for (const int rounds : {0, 1, 3, 4, 4}) {  // at most one for each two of the eight slots
    EXPECT_EQ(RoundsWithoutPlan(nearly_), rounds);
    Remember(costs_, 1);
  }
  EXPECT_FALSE(StillHolds(far_)) << "a large change is planned for at once";
}

class ManySlotsTest : public PlainRoundsTest {
 protected:
  ManySlotsTest() : PlainRoundsTest(64) {}
};

TEST_F(ManySlotsTest, PatienceIsBounded) {
  Remember(costs_, 1);
  for (const int rounds : {0, 1, 3, 7, 7}) {
    EXPECT_EQ(RoundsWithoutPlan(nearly_), rounds);
    Remember(costs_, 1);
  }
}

}  // namespace
}  // namespace tandem
