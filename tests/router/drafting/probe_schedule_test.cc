#include "services/router/drafting/probe_schedule.h"

#include <gtest/gtest.h>

#include <functional>

namespace tandem {
namespace {

constexpr double kBudget = 0.01;

// Returns the number of rounds until `is_due` returns true, including that round.
int RoundsUntil(const std::function<bool()>& is_due) {
  for (int round = 1; round <= 10000; ++round) {
    if (is_due()) return round;
  }
  return -1;
}

// ---------------------------------------------------------------- credit

TEST(ProbeScheduleTest, NothingCanBeBoughtBeforeARoundPaidIn) {
  ProbeSchedule schedule(kBudget);
  EXPECT_FALSE(schedule.BuyCostProbe(1e-6));
  EXPECT_EQ(schedule.credit_seconds(), 0);
}

TEST(ProbeScheduleTest, CreditBeginsWithTwoRoundsAndEachRoundPaysAShareOfItsTime) {
  ProbeSchedule schedule(kBudget);
  schedule.PayIn(1, 3, 1);
  EXPECT_DOUBLE_EQ(schedule.credit_seconds(), 2 * 1 + kBudget * 3);
  schedule.PayIn(1, 5, 1);
  EXPECT_DOUBLE_EQ(schedule.credit_seconds(), 2 + kBudget * 8);
}

TEST(ProbeScheduleTest, ManySlotsPayLess) {
  const auto paid_by = [](size_t num_slots) {
    ProbeSchedule schedule(kBudget);
    schedule.PayIn(num_slots, 1, 1);
    return schedule.credit_seconds() - 2;
  };
  EXPECT_NEAR(paid_by(11), paid_by(1) / 2, 1e-12);
  EXPECT_NEAR(paid_by(31), paid_by(1) / 4, 1e-12);
}

TEST(ProbeScheduleTest, AtMostEightRoundsAreSavedUp) {
  ProbeSchedule schedule(kBudget);
  for (int round = 0; round < 1000; ++round) schedule.PayIn(1, 1, 1);
  EXPECT_DOUBLE_EQ(schedule.credit_seconds(), 8);
  schedule.PayIn(1, 0.5, 0.5);
  EXPECT_DOUBLE_EQ(schedule.credit_seconds(), 8) << "shorter rounds take nothing away";
}

TEST(ProbeScheduleTest, AProbeThatCostsMoreThanTheCreditIsNotBought) {
  ProbeSchedule schedule(0);
  schedule.PayIn(1, 1, 1);
  EXPECT_FALSE(schedule.BuyCostProbe(2.1));
  EXPECT_FALSE(schedule.BuyAcceptanceProbe(0, {.serial = 1, .seconds = 2.1}));
  EXPECT_DOUBLE_EQ(schedule.credit_seconds(), 2);
  EXPECT_TRUE(schedule.BuyCostProbe(1.5));
  EXPECT_DOUBLE_EQ(schedule.credit_seconds(), 0.5);
}

// ---------------------------------------------------------------- reference rounds

TEST(ProbeScheduleTest, ReferenceRoundsNearATieComeAfterGapsThatDouble) {
  ProbeSchedule schedule(kBudget);
  for (const int gap : {8, 16, 32, 64, 64, 64}) {
    EXPECT_EQ(RoundsUntil([&] { return schedule.ReferenceIsDue(1.1, 1); }), gap);
  }
}

TEST(ProbeScheduleTest, PlainPlansBringReferenceRoundsNearerAgain) {
  ProbeSchedule schedule(kBudget);
  for (int i = 0; i < 5; ++i) RoundsUntil([&] { return schedule.ReferenceIsDue(1, 1); });
  schedule.OnPlainPlan();
  EXPECT_EQ(RoundsUntil([&] { return schedule.ReferenceIsDue(1, 1); }), 32);
  for (int i = 0; i < 10; ++i) schedule.OnPlainPlan();
  EXPECT_EQ(RoundsUntil([&] { return schedule.ReferenceIsDue(1, 1); }), 8);
}

TEST(ProbeScheduleTest, AClearGainNeedsNoReferenceUntilItShrinks) {
  ProbeSchedule schedule(kBudget);
  for (int round = 0; round < 1000; ++round) EXPECT_FALSE(schedule.ReferenceIsDue(1.2, 1));
  EXPECT_TRUE(schedule.ReferenceIsDue(1.15, 1));
}

// ---------------------------------------------------------------- cost probes

TEST(ProbeScheduleTest, UncertainCostsAreExaminedAfterGapsThatDouble) {
  ProbeSchedule schedule(kBudget);
  for (const int gap : {1, 2, 4, 8, 16, 32, 64, 64}) {
    EXPECT_EQ(RoundsUntil([&] { return schedule.CostProbeIsDue(); }), gap);
  }
}

TEST(ProbeScheduleTest, AfterACostProbeTheNextLookFollowsAtOnce) {
  ProbeSchedule schedule(kBudget);
  schedule.PayIn(1, 1, 1);
  for (int i = 0; i < 5; ++i) RoundsUntil([&] { return schedule.CostProbeIsDue(); });
  ASSERT_TRUE(schedule.BuyCostProbe(1));
  EXPECT_EQ(RoundsUntil([&] { return schedule.CostProbeIsDue(); }), 1);
}

// ---------------------------------------------------------------- acceptance probes

class AcceptanceProbeTest : public testing::Test {
 protected:
  AcceptanceProbeTest() { schedule_.PayIn(1, 1, 1000); }

  // Returns the number of rounds of one slot that does not draft until it is probed.
  int RoundsUntilProbe() {
    return RoundsUntil([this] { return schedule_.AcceptanceProbeIsDue(false, true, false); });
  }
  // Makes a probe that takes one second, and whose tokens have this value.
  void Probe(double worth_seconds) {
    schedule_.BeginRound(0);
    ASSERT_TRUE(schedule_.BuyAcceptanceProbe(
        0, {.serial = 7, .seconds = 1, .seconds_per_token = worth_seconds}));
    schedule_.OnJudged(7, 2, 1);
  }

  ProbeSchedule schedule_{kBudget};
};

TEST_F(AcceptanceProbeTest, TheFirstComesAfterSixteenRoundsWithoutADraft) {
  EXPECT_EQ(RoundsUntilProbe(), 16);
}

TEST_F(AcceptanceProbeTest, ProbesThatAreNotWorthTheirTimeDoubleTheGap) {
  RoundsUntilProbe();
  for (const int gap : {32, 64, 128, 128}) {
    Probe(0);
    EXPECT_EQ(RoundsUntilProbe(), gap);
  }
}

TEST_F(AcceptanceProbeTest, AfterALongTimeWithoutGainTheGapIsAnEighthOfItUpToABound) {
  for (int round = 0; round < 2000; ++round) schedule_.AcceptanceProbeIsDue(false, true, true);
  RoundsUntilProbe();
  for (const int gap : {32, 64, 128, 256}) {
    Probe(0);
    EXPECT_EQ(RoundsUntilProbe(), gap);
  }
  Probe(0);
  EXPECT_EQ(RoundsUntilProbe(), (2000 + 1 + 32 + 64 + 128 + 256) / 8);
  for (int probe = 0; probe < 10; ++probe) {
    Probe(0);
    RoundsUntilProbe();
  }
  Probe(0);
  EXPECT_EQ(RoundsUntilProbe(), 512);
}

TEST_F(AcceptanceProbeTest, ProbesThatAreWorthTheirTimeFollowSoonUpToALimit) {
  RoundsUntilProbe();
  for (int probe = 0; probe < 8; ++probe) {
    Probe(1);
    EXPECT_EQ(RoundsUntilProbe(), 2);
  }
  Probe(1);
  EXPECT_EQ(RoundsUntilProbe(), 4) << "they give no new information";
}

TEST_F(AcceptanceProbeTest, OneMoreQuickProbeIsGrantedEvery128Rounds) {
  RoundsUntilProbe();
  for (int probe = 0; probe < 8; ++probe) {
    Probe(1);
    RoundsUntilProbe();
  }
  for (int round = 0; round < 128; ++round) schedule_.AcceptanceProbeIsDue(false, true, true);
  Probe(1);
  EXPECT_EQ(RoundsUntilProbe(), 1) << "the gap of two has passed";
}

TEST_F(AcceptanceProbeTest, AcceptedTokensPayTheirValueBack) {
  const double before = schedule_.credit_seconds();
  Probe(5);
  EXPECT_DOUBLE_EQ(schedule_.credit_seconds(), before - 1 + 5);
}

TEST_F(AcceptanceProbeTest, OnlyTheProbedSequencesDraftIsTheOutcome) {
  schedule_.BuyAcceptanceProbe(1, {.serial = 7, .seconds = 1, .seconds_per_token = 1});
  const double before = schedule_.credit_seconds();
  schedule_.OnJudged(8, 2, 2);
  schedule_.OnJudged(7, 0, 0);
  EXPECT_DOUBLE_EQ(schedule_.credit_seconds(), before);
  schedule_.OnJudged(7, 2, 2);
  EXPECT_DOUBLE_EQ(schedule_.credit_seconds(), before + 2);
  schedule_.OnJudged(7, 2, 2);
  EXPECT_DOUBLE_EQ(schedule_.credit_seconds(), before + 2) << "an outcome counts once";
}

TEST_F(AcceptanceProbeTest, TheNextRoundOfTheCohortStopsAwaitingTheOutcome) {
  for (const uint32_t cohort : {0u, 1u}) {
    schedule_.BuyAcceptanceProbe(cohort,
                                 {.serial = 7 + cohort, .seconds = 1, .seconds_per_token = 1});
  }
  const double before = schedule_.credit_seconds();
  schedule_.BeginRound(0);
  schedule_.OnJudged(7, 2, 2);
  EXPECT_DOUBLE_EQ(schedule_.credit_seconds(), before);
  schedule_.OnJudged(8, 2, 2);
  EXPECT_DOUBLE_EQ(schedule_.credit_seconds(), before + 2) << "the other cohort's round continues";
}

TEST_F(AcceptanceProbeTest, AProbeWaitsForPromptsAndThenComesAtOnce) {
  for (int round = 0; round < 100; ++round) {
    EXPECT_FALSE(schedule_.AcceptanceProbeIsDue(false, true, true));
  }
  EXPECT_TRUE(schedule_.AcceptanceProbeIsDue(false, true, false));
}

TEST_F(AcceptanceProbeTest, IfAllSlotsDraftNoneIsProbedAndTheGapBeginsAgain) {
  RoundsUntilProbe();
  for (int probe = 0; probe < 5; ++probe) {
    Probe(0);
    RoundsUntilProbe();
  }
  for (int round = 0; round < 100; ++round) {
    EXPECT_FALSE(schedule_.AcceptanceProbeIsDue(true, false, false));
  }
  EXPECT_EQ(RoundsUntilProbe(), 16);
}

TEST_F(AcceptanceProbeTest, IfNoSlotMayDraftTheGapContinues) {
  for (int round = 0; round < 10; ++round) schedule_.AcceptanceProbeIsDue(false, true, false);
  for (int round = 0; round < 10; ++round) schedule_.AcceptanceProbeIsDue(false, false, false);
  EXPECT_EQ(RoundsUntilProbe(), 6);
}

}  // namespace
}  // namespace tandem
