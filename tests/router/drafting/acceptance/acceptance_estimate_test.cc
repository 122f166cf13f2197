#include "services/router/drafting/acceptance/acceptance_estimate.h"

#include <gtest/gtest.h>

#include "tests/router/drafting/draft_simulation.h"

namespace tandem {
namespace {

class AcceptanceEstimateTest : public testing::Test {
 protected:
  // Puts the prior in the state after many requests with this chance at every position.
  void TellPrior(double alpha) {
    for (uint64_t round = 0; round < 400; ++round)
      prior_.Observe(JudgedChain(8, Accepted(alpha, 8, round)));
  }
  static uint32_t Accepted(double alpha, uint32_t drafted, uint64_t round) {
    uint32_t accepted = 0;
    while (accepted < drafted && Uniform(11, 100 * round + accepted) < alpha) ++accepted;
    return accepted;
  }

  AcceptancePrior prior_;
  AcceptanceEstimate estimate_{&prior_};
};

TEST_F(AcceptanceEstimateTest, StartsFromTheRequestsOfItsMode) {
  TellPrior(0.9);
  EXPECT_NEAR(estimate_.Conditional(0), 0.9, 0.03);
  EXPECT_NEAR(estimate_.Conditional(7), 0.9, 0.06);
}

TEST_F(AcceptanceEstimateTest, APriorThatKnowsNothingIsNearHalf) {
  EXPECT_GT(estimate_.Conditional(0), 0.4);
  EXPECT_LT(estimate_.Conditional(0), 0.8);
}

TEST_F(AcceptanceEstimateTest, OverrulesThePriorWithinAFewRounds) {
  TellPrior(0.9);
  for (int round = 0; round < 10; ++round) estimate_.Observe(JudgedChain(4, 0));
  EXPECT_LT(estimate_.Conditional(0), 0.4);
  AcceptancePrior bad_prior;
  for (int round = 0; round < 400; ++round) bad_prior.Observe(JudgedChain(4, 0));
  AcceptanceEstimate good(&bad_prior);
  for (int round = 0; round < 10; ++round) good.Observe(JudgedChain(4, 4));
  EXPECT_GT(good.Conditional(0), 0.6);
}

TEST_F(AcceptanceEstimateTest, PositionsAfterARejectionDoNotCountAsRejected) {
  // One token of eight is accepted, always the first one. The second one is always rejected.
  // Nothing is known about later positions, so they follow the level.
  TellPrior(0.8);
  const double before = estimate_.Conditional(5);
  for (int round = 0; round < 30; ++round) estimate_.Observe(JudgedChain(8, 1));
  EXPECT_GT(estimate_.Conditional(0), 0.8);
  EXPECT_LT(estimate_.Conditional(1), 0.25);
  EXPECT_GT(estimate_.Conditional(5), 0.4);
  EXPECT_LT(estimate_.Conditional(5), before);
}

TEST_F(AcceptanceEstimateTest, SiblingsAreLearnedByRank) {
  EXPECT_GT(estimate_.OfSibling(1), estimate_.OfSibling(2)) << "before anything is known";
  // In ten trees with three children, the first child is accepted four times, and the second one
  // three times.
  for (int round = 0; round < 100; ++round) {
    const int32_t accepted = round % 10 < 4 ? 0 : (round % 10 < 7 ? 1 : -1);
    const std::vector<JudgedPosition> judged = {{.num_children = 3, .accepted = accepted}};
    estimate_.Observe(judged);
    prior_.Observe(judged);
  }
  EXPECT_NEAR(estimate_.Conditional(0), 0.4, 0.1);
  EXPECT_NEAR(estimate_.OfSibling(1), 0.3, 0.1);
  EXPECT_LT(estimate_.OfSibling(2), 0.05);
  const AcceptanceEstimate later(&prior_);
  EXPECT_NEAR(later.OfSibling(1), 0.3, 0.1);
}

TEST_F(AcceptanceEstimateTest, EveryPositionIsFoundFromBlocksThatStopAtTheFirstRejection) {
  TellPrior(0.6);
  for (uint64_t round = 0; round < 2000; ++round) {
    // The first position is easier than later positions.
    uint32_t accepted = 0;
    while (accepted < 4 && Uniform(5, 10 * round + accepted) < (accepted == 0 ? 0.9 : 0.6)) {
      ++accepted;
    }
    estimate_.Observe(JudgedChain(4, accepted));
    prior_.Observe(JudgedChain(4, accepted));
  }
  EXPECT_NEAR(estimate_.Conditional(0), 0.9, 0.08);
  for (uint32_t position : {1u, 2u, 3u}) {
    EXPECT_NEAR(estimate_.Conditional(position), 0.6, 0.12) << position;
  }
}

TEST_F(AcceptanceEstimateTest, AChangeIsNoticedBeforeOldRoundsHaveFaded) {
  TellPrior(0.9);
  for (uint64_t round = 0; round < 200; ++round)
    estimate_.Observe(JudgedChain(4, Accepted(0.9, 4, round)));
  EXPECT_GT(estimate_.Conditional(0), 0.8);
  for (int round = 0; round < 12; ++round) estimate_.Observe(JudgedChain(4, 0));
  EXPECT_LT(estimate_.Conditional(0), 0.45);
}

TEST_F(AcceptanceEstimateTest, NoiseAloneDoesNotCountAsAChange) {
  // Over many rounds with alpha 0.7, the estimate stays near 0.7, because noise alone makes it
  // forget nothing.
  TellPrior(0.7);
  double lowest = 1;
  for (uint64_t round = 0; round < 2000; ++round) {
    estimate_.Observe(JudgedChain(4, Accepted(0.7, 4, round)));
    lowest = std::min(lowest, estimate_.Conditional(0));
  }
  EXPECT_GT(lowest, 0.45);
}

TEST_F(AcceptanceEstimateTest, WithoutDraftsNothingChangesUntilTheNextOne) {
  TellPrior(0.8);
  for (int round = 0; round < 40; ++round) estimate_.Observe(JudgedChain(4, 0));
  const double bad = estimate_.Conditional(0);
  for (int round = 0; round < 100; ++round) estimate_.Observe({});
  EXPECT_EQ(estimate_.Conditional(0), bad);
  EXPECT_EQ(estimate_.rounds_without_draft(), 100u);
  // Old counts are overruled sooner than recent counts.
  AcceptanceEstimate fresh(&prior_);
  for (int round = 0; round < 40; ++round) fresh.Observe(JudgedChain(4, 0));
  fresh.Observe(JudgedChain(4, 4));
  estimate_.Observe(JudgedChain(4, 4));
  EXPECT_GT(estimate_.Conditional(0), fresh.Conditional(0) + 0.1);
  EXPECT_EQ(estimate_.rounds_without_draft(), 0u);
}

TEST_F(AcceptanceEstimateTest, IsAlwaysAProbability) {
  for (int round = 0; round < 500; ++round) {
    estimate_.Observe(JudgedChain(16, 16));
    prior_.Observe(JudgedChain(16, 16));
  }
  for (uint32_t position = 0; position < 64; ++position) {
    EXPECT_GT(estimate_.Conditional(position), 0.9);
    EXPECT_LE(estimate_.Conditional(position), 1.0);
  }
}

}  // namespace
}  // namespace tandem
