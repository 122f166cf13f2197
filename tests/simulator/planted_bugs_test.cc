// Tests the simulator itself: each planted bug is found by one of the invariants that it breaks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "tests/simulator/world.h"

namespace tandem::simulator {
namespace {

struct Expectation {
  PlantedBug bug;
  uint64_t within_seeds;
  std::vector<std::string> by;  // names of the invariants that may find the bug
};

std::ostream& operator<<(std::ostream& out, const Expectation& expectation) {
  return out << NameOf(expectation.bug);
}

using enum PlantedBug;
const Expectation kExpectations[] = {
    {kTokenEmittedTwiceAfterRecovery, 100, {"tokens"}},
    {kTokenLost, 100, {"tokens", "commands"}},
    {kNextTokenDropped, 100, {"commands"}},
    {kTokensSwapped, 100, {"tokens"}},
    {kSourceMislabeled, 100, {"statistics"}},
    {kPromptTokenScoredTwice, 100, {"prompts"}},
    {kPromptTokenNotScored, 100, {"prompts"}},
    {kWriteAfterFinish, 100, {"calls"}},
    {kFinishMissing, 100, {"calls"}},
    {kFinishTwice, 100, {"calls"}},
    {kCancelForgotten, 100, {"calls"}},
    {kQueueOverfull, 100, {"queue"}},
    {kStepRowsExceeded, 100, {"rows"}},
    {kTwoBatchesInFlight, 100, {"batches"}},
    {kCommandToClosedSession, 100, {"sessions"}},
    // Few scenarios have a late reply of the very batch that the new session waits for.
    {kOldSessionReplyAccepted,
     10000,
     {"batches", "drafts", "commands", "tokens", "sessions", "ring"}},
    {kReplyTakenTwice, 100, {"sessions", "tokens", "status", "agreement"}},
    {kSlotNotClosed, 100, {"slots"}},
    {kEpochNotGrown, 100, {"epochs"}},
    {kCommandNumberReused, 100, {"numbers"}},
    {kCachedLenOneTooLong, 100, {"agreement"}},
    {kCachedLenOneTooShort, 100, {"agreement"}},
    {kCatchUpSkipsToken, 100, {"commands"}},
    {kPreemptedRowsKept, 200, {"agreement"}},
    {kDraftsOfOtherPrefix, 100, {"drafts"}},
    {kFoundInRejectedTokens, 100, {"drafts"}},
    {kOldProposalUsed, 200, {"drafts"}},
    {kTreeJudgedAsChain, 100, {"drafts", "commands"}},
    {kTreeTooLarge, 100, {"drafts", "commands"}},
    {kPathOfSibling, 200, {"tokens", "agreement"}},
    {kRejectionRowsBelieved, 100, {"agreement"}},
    {kSiblingRowsBelieved, 200, {"agreement"}},
    {kRingEntryReleasedTwice, 100, {"ring"}},
    {kRingEntryNeverReleased, 100, {"ring"}},
    {kRingReferenceDropped, 100, {"ring"}},
    {kRingOfOtherDrafter, 200, {"ring"}},
    {kRowsOfOtherDrafterBelieved, 200, {"agreement"}},
    {kDeadlineForgotten, 100, {"liveness"}},
    {kDeadlineInThePast, 100, {"storm"}},
    {kRollbackNumberReused, 100, {"numbers"}},
    {kRollbackOneRowOff, 100, {"rollbacks"}},
    {kRollbackOfUnjudgedRows, 100, {"rollbacks"}},
    {kRollbackNeverSent, 100, {"rollbacks"}},
    {kPromoteForgotten, 200, {"roster"}},
    {kModelRollBackForgotten, 1000, {"roster"}},
    {kUnloadForgotten, 200, {"roster"}},
    {kOtherModelLoaded, 100, {"roster"}},
    {kHeadsSwapForgotten, 200, {"heads"}},
    {kOtherHeadsLoaded, 200, {"heads"}},
    {kRollbackKeepsRow, 200, {"tokens"}},
    {kRollbackDropsRow, 200, {"tokens"}},
    {kRejectedRowsKept, 100, {"tokens"}},
    {kRowOfSiblingKept, 200, {"tokens"}},
    {kRowsMovedBackwards, 200, {"tokens"}},
    {kStaleEpochAccepted, 3000, {"epochs"}},
    {kStaleCommandExecuted, 200, {"numbers"}},
    {kReplayOfOtherSlot, 200, {"replay"}},
    {kRollbackNotStored, 3000, {"replay"}},
    {kHashNotChecked, 1000, {"tokens", "audit"}},
    {kPageLeakedOnCancel, 100, {"pages"}},
    {kPageFreedTwice, 1000, {"pages"}},
    {kFreePagesMiscounted, 100, {"pages"}},
    {kCacheHitOfOtherTokens, 100, {"tokens", "pages", "audit"}},
    {kCacheSaltIgnored, 200, {"pages"}},
    {kRingSequenceNotChecked, 3000, {"tokens"}},
    {kHeadsLoadingForgotten, 200, {"heads"}},
    {kPageLacksFeature, 200, {"features"}},
    // Few texts are proposed for before and after a swap.
    {kFeaturesSurviveSwap, 3000, {"features"}},
    {kStatesSurviveSwap, 200, {"features"}},
    {kTakenPageKeepsMark, 200, {"features"}},
    {kSlotsOutliveSession, 100, {"pages"}},
};

class PlantedBugTest : public ::testing::TestWithParam<Expectation> {};

TEST_P(PlantedBugTest, IsFound) {
  const Expectation& expectation = GetParam();
  for (uint64_t seed = 0; seed < expectation.within_seeds; ++seed) {
    const RunResult result = RunSeed(seed, expectation.bug);
    if (!result.finding.has_value()) continue;
    EXPECT_TRUE(std::find(expectation.by.begin(), expectation.by.end(),
                          result.finding->invariant) != expectation.by.end())
        << "seed " << seed << ": " << result.finding->invariant << ": " << result.finding->what;
    return;
  }
  ADD_FAILURE() << "not within " << expectation.within_seeds << " seeds";
}

INSTANTIATE_TEST_SUITE_P(All, PlantedBugTest, ::testing::ValuesIn(kExpectations),
                         [](const auto& tested) { return std::string(NameOf(tested.param.bug)); });

TEST(PlantedBugsTest, EachBugHasItsExpectation) {
  std::set<PlantedBug> expected;
  for (const Expectation& expectation : kExpectations) expected.insert(expectation.bug);
  EXPECT_EQ(expected.size(), PlantedBugs().size());
}

}  // namespace
}  // namespace tandem::simulator
