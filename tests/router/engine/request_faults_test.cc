#include "services/router/engine/request_faults.h"

#include <gtest/gtest.h>

namespace tandem::request_faults_test {
namespace {

TEST(RequestFaultsTest, LostVerifiersAreCountedUntilOneGetsFurther) {
  RequestFaults faults;
  EXPECT_EQ(faults.verifiers_lost(), 0);
  faults.VerifierLost(0, 5, 5);
  faults.VerifierLost(0, 7, 7);
  EXPECT_EQ(faults.verifiers_lost(), 2);
  EXPECT_EQ(faults.suspected_at(), 7);
  faults.VerifierAgreed();
  EXPECT_EQ(faults.verifiers_lost(), 2) << "to rebuild rows is no progress";
  faults.VerifierHolds(8);
  EXPECT_EQ(faults.verifiers_lost(), 0);
  faults.VerifierLost(0, 9, 9);
  EXPECT_EQ(faults.verifiers_lost(), 1);
  EXPECT_EQ(faults.suspected_at(), 9);
  faults.VerifierHolds(8);
  EXPECT_EQ(faults.verifiers_lost(), 1) << "as many were held before";
}

TEST(RequestFaultsTest, VerifiersThatWereLostOfOneOutageCountOnce) {
  RequestFaults faults;
  faults.VerifierLost(0, 4, 5);
  faults.VerifierLost(0, 5, 6);  // it was silent since the first was lost
  EXPECT_EQ(faults.verifiers_lost(), 1);
  EXPECT_EQ(faults.suspected_at(), 6);
  faults.VerifierLost(0, 5.5, 7);
  EXPECT_EQ(faults.verifiers_lost(), 2) << "the uncounted death hides none";
}

TEST(RequestFaultsTest, ASuspectMustGetFurtherThanTheVerifierThatDied) {
  RequestFaults faults;
  faults.VerifierHolds(100);
  faults.VerifierLost(163, 4, 5);  // its batch had 64 rows more
  faults.VerifierHolds(163);
  EXPECT_EQ(faults.verifiers_lost(), 1);
  faults.VerifierHolds(164);
  EXPECT_EQ(faults.verifiers_lost(), 0);
}

TEST(RequestFaultsTest, RowsOfOthersDoNotCountOnceAVerifierGotFurther) {
  RequestFaults faults;
  faults.VerifierHolds(5);
  faults.TakeOver({.num = 1, .counted_at = 3, .last_at = 3, .rows = 12});
  faults.TakeOver({.num = 0, .last_at = 3, .rows = 13});
  EXPECT_EQ(faults.verifiers_lost(), 0);
  faults.VerifierLost(9, 4, 5);
  EXPECT_EQ(faults.verifiers_lost(), 1);
  faults.VerifierHolds(10);
  EXPECT_EQ(faults.verifiers_lost(), 0) << "it got further than its own death";
}

TEST(RequestFaultsTest, ARequestTakesOverWhatOthersWithItsPromptHaveMet) {
  RequestFaults faults;
  faults.VerifierHolds(10);
  faults.TakeOver({.num = 1, .last_at = 7, .rows = 4});
  EXPECT_EQ(faults.verifiers_lost(), 1);
  faults.VerifierHolds(10);
  EXPECT_EQ(faults.verifiers_lost(), 1) << "it had as many rows when the other died";
  faults.VerifierLost(0, 8, 9);
  faults.TakeOver({.num = 1, .last_at = 10, .rows = 4});
  EXPECT_EQ(faults.verifiers_lost(), 2);
  EXPECT_EQ(faults.suspected_at(), 10);
  faults.TakeOver({.num = 2, .last_at = 8, .rows = 20});
  EXPECT_EQ(faults.suspected_at(), 10);
  faults.VerifierHolds(20);
  EXPECT_EQ(faults.verifiers_lost(), 2);
  faults.TakeOver({.num = 0, .last_at = 8, .rows = 20});
  EXPECT_EQ(faults.verifiers_lost(), 2);
  faults.TakeOver({.num = 0, .last_at = 8, .rows = 21});
  EXPECT_EQ(faults.verifiers_lost(), 0) << "a verifier got further with the prompt";
  RequestFaults witness;
  witness.VerifierLost(5, 1, 2);
  witness.TakeOver({.num = 2, .last_at = 3, .rows = 8});
  witness.TakeOver({.num = 0, .last_at = 3, .rows = 9});
  EXPECT_EQ(witness.verifiers_lost(), 1) << "its own death remains";
}

TEST(RequestFaultsTest, DeathsOfAnEarlierRequestCountUntilItsRowsAreExceeded) {
  RequestFaults faults;
  faults.TakeOver({.num = 1, .last_at = 7, .rows = 10});
  EXPECT_EQ(faults.verifiers_lost(), 1);
  EXPECT_EQ(faults.suspected_at(), 7);
  faults.VerifierHolds(10);
  EXPECT_EQ(faults.verifiers_lost(), 1);
  faults.VerifierHolds(11);
  EXPECT_EQ(faults.verifiers_lost(), 0);
}

TEST(RequestFaultsTest, AVerifierMayDisagreeThreeTimesInARow) {
  RequestFaults faults;
  for (int i = 0; i < RequestFaults::kMaxResyncs; ++i) EXPECT_FALSE(faults.VerifierDisagreed());
  EXPECT_TRUE(faults.VerifierDisagreed());
  faults.VerifierAgreed();
  for (int i = 0; i < RequestFaults::kMaxResyncs; ++i) EXPECT_FALSE(faults.VerifierDisagreed());
  EXPECT_TRUE(faults.VerifierDisagreed());
  EXPECT_FALSE(faults.drafter(0).off());
}

TEST(RequestFaultsTest, ADrafterMayDisagreeThreeTimesInARow) {
  RequestFaults faults;
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < RequestFaults::kMaxResyncs; ++i) faults.drafter(0).Disagreed();
    EXPECT_FALSE(faults.drafter(0).off());
    faults.drafter(0).Agreed();
  }
  for (int i = 0; i < RequestFaults::kMaxResyncs + 1; ++i) faults.drafter(0).Disagreed();
  EXPECT_TRUE(faults.drafter(0).off());
  faults.drafter(0).Agreed();
  EXPECT_TRUE(faults.drafter(0).off()) << "drafting stays off";
}

TEST(RequestFaultsTest, DraftingStopsAfterSeveralLostDraftersInARow) {
  RequestFaults faults;
  faults.drafter(0).Lost(2);
  EXPECT_FALSE(faults.drafter(0).off());
  faults.drafter(0).Agreed();
  EXPECT_EQ(faults.drafter(0).num_lost(), 0);
  faults.drafter(0).Lost(2);
  EXPECT_FALSE(faults.drafter(0).off());
  faults.drafter(0).Lost(2);
  EXPECT_TRUE(faults.drafter(0).off());
  EXPECT_EQ(faults.drafter(0).num_lost(), 2);
}

TEST(RequestFaultsTest, OtherWorkersMayDoWhatTheFormerOnesCouldNot) {
  RequestFaults faults;
  faults.drafter(0).Stop();
  EXPECT_TRUE(faults.drafter(0).off());
  for (int i = 0; i < RequestFaults::kMaxResyncs; ++i) {
    (void)faults.VerifierDisagreed();
    faults.drafter(0).Disagreed();
  }
  faults.VerifierLost(0, 5, 5);
  faults.Moved(2);
  EXPECT_FALSE(faults.drafter(0).off());
  EXPECT_FALSE(faults.VerifierDisagreed()) << "the count begins anew";
  faults.drafter(0).Disagreed();
  EXPECT_FALSE(faults.drafter(0).off());
  EXPECT_EQ(faults.verifiers_lost(), 1) << "lost verifiers count wherever they were";
}

TEST(RequestFaultsTest, ARequestThatDraftersDiedOfIsNotDraftedForElsewhere) {
  RequestFaults faults;
  faults.drafter(0).Lost(2);
  faults.drafter(0).Stop();
  faults.Moved(2);
  EXPECT_FALSE(faults.drafter(0).off()) << "one was lost, and two are too many";
  faults.drafter(0).Lost(2);
  faults.Moved(2);
  EXPECT_TRUE(faults.drafter(0).off());
}

TEST(RequestFaultsTest, EachDraftModelHasFaultsOfItsOwn) {
  RequestFaults faults;
  faults.drafter(1).Lost(2);
  faults.drafter(0).Agreed();
  faults.drafter(1).Lost(2);
  EXPECT_TRUE(faults.drafter(1).off()) << "another model's answers make no difference";
  EXPECT_FALSE(faults.drafter(0).off());
  faults.drafter(0).Stop();
  EXPECT_FALSE(faults.drafter(2).off());
}

}  // namespace
}  // namespace tandem::request_faults_test
