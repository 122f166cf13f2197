#include "services/router/drafting/catch_up_ledger.h"

#include <gtest/gtest.h>

#include "services/router/drafting/draft_plan.h"

namespace tandem {
namespace {

constexpr size_t kSlots = 4;

// Makes a catch-up of one second whose drafts gain `gained_seconds` before they end.
void CatchUp(double gained_seconds, CatchUpLedger* ledger, uint32_t cohort = 0) {
  ledger->Invest(cohort, 1);
  ledger->OnDraftedRound(cohort, kSlots, gained_seconds);
  ledger->OnPlainRound(cohort, kSlots);
}

TEST(CatchUpLedgerTest, TheFirstCatchUpMustPromiseTheGainOfAnyDraft) {
  const CatchUpLedger ledger;
  for (const size_t num_slots : {1, 2, 4, 8, 64, 128}) {
    EXPECT_DOUBLE_EQ(ledger.RequiredGain(num_slots), DraftMargin(num_slots));
  }
  EXPECT_DOUBLE_EQ(ledger.RequiredGain(7), DraftMargin(4)) << "up to the next power of two";
  EXPECT_DOUBLE_EQ(ledger.RequiredGain(1000), DraftMargin(128))
      << "the last range has no upper end";
}

TEST(CatchUpLedgerTest, ACatchUpInVainDoublesTheGainThatTheNextMustPromise) {
  CatchUpLedger ledger;
  CatchUp(0.4, &ledger);
  EXPECT_DOUBLE_EQ(ledger.RequiredGain(kSlots), 2 * DraftMargin(kSlots));
}

TEST(CatchUpLedgerTest, DraftsThatLoseTimeAreInVainToo) {
  CatchUpLedger ledger;
  CatchUp(-3, &ledger);
  EXPECT_DOUBLE_EQ(ledger.RequiredGain(kSlots), 2 * DraftMargin(kSlots));
}

TEST(CatchUpLedgerTest, ACatchUpThatIsHalfEarnedChangesNothing) {
  CatchUpLedger ledger;
  CatchUp(0.5, &ledger);
  EXPECT_DOUBLE_EQ(ledger.RequiredGain(kSlots), DraftMargin(kSlots));
}

TEST(CatchUpLedgerTest, RoundsWithoutACatchUpChangeNothing) {
  CatchUpLedger ledger;
  ledger.OnDraftedRound(0, kSlots, -100);
  ledger.OnPlainRound(0, kSlots);
  EXPECT_DOUBLE_EQ(ledger.RequiredGain(kSlots), DraftMargin(kSlots));
}

TEST(CatchUpLedgerTest, AnInvestmentIsJudgedOnce) {
  CatchUpLedger ledger;
  CatchUp(0, &ledger);
  const double after = ledger.RequiredGain(kSlots);
  ledger.OnPlainRound(0, kSlots);
  EXPECT_LE(ledger.RequiredGain(kSlots), after);
}

TEST(CatchUpLedgerTest, CatchUpsInSeveralRoundsAreOneInvestment) {
  CatchUpLedger ledger;
  ledger.Invest(0, 1);
  ledger.OnDraftedRound(0, kSlots, 0.6);
  ledger.Invest(0, 1);
  ledger.OnDraftedRound(0, kSlots, 0.3);
  ledger.OnPlainRound(0, kSlots);
  EXPECT_DOUBLE_EQ(ledger.RequiredGain(kSlots), 2 * DraftMargin(kSlots)) << "0.9 of 2 seconds";
}

TEST(CatchUpLedgerTest, TheGainThatACatchUpMustPromiseIsBounded) {
  CatchUpLedger ledger;
  for (int i = 0; i < 20; ++i) CatchUp(0, &ledger);
  EXPECT_DOUBLE_EQ(ledger.RequiredGain(kSlots), 0.2);
}

TEST(CatchUpLedgerTest, CatchUpsThatAreEarnedBackHalveTheGainDownToTheMargin) {
  CatchUpLedger ledger;
  for (int i = 0; i < 20; ++i) CatchUp(0, &ledger);
  CatchUp(1, &ledger);
  EXPECT_NEAR(ledger.RequiredGain(kSlots), 0.1, 1e-3);
  for (int i = 0; i < 20; ++i) CatchUp(1, &ledger);
  EXPECT_DOUBLE_EQ(ledger.RequiredGain(kSlots), DraftMargin(kSlots));
}

TEST(CatchUpLedgerTest, ARaisedMarginFadesOverThousandsOfRounds) {
  CatchUpLedger ledger;
  for (int i = 0; i < 20; ++i) CatchUp(0, &ledger);
  for (int round = 0; round < 100; ++round) ledger.OnPlainRound(0, kSlots);
  EXPECT_GT(ledger.RequiredGain(kSlots), 0.19);
  for (int round = 0; round < 40000; ++round) ledger.OnPlainRound(0, kSlots);
  EXPECT_NEAR(ledger.RequiredGain(kSlots), DraftMargin(kSlots), 1e-4);
}

TEST(CatchUpLedgerTest, OtherNumbersOfSlotsLearnNothing) {
  CatchUpLedger ledger;
  CatchUp(0, &ledger);
  EXPECT_DOUBLE_EQ(ledger.RequiredGain(kSlots / 2), DraftMargin(kSlots / 2));
  EXPECT_DOUBLE_EQ(ledger.RequiredGain(2 * kSlots), DraftMargin(2 * kSlots));
}

TEST(CatchUpLedgerTest, EachCohortHasItsOwnInvestment) {
  CatchUpLedger ledger;
  ledger.Invest(0, 1);
  ledger.OnPlainRound(1, kSlots);
  EXPECT_DOUBLE_EQ(ledger.RequiredGain(kSlots), DraftMargin(kSlots));
  ledger.OnPlainRound(0, kSlots);
  EXPECT_DOUBLE_EQ(ledger.RequiredGain(kSlots), 2 * DraftMargin(kSlots));
}

}  // namespace
}  // namespace tandem
