// Bugs that the simulator plants on purpose, to show that its invariants find them.
#ifndef TANDEM_TESTS_SIMULATOR_SCENARIO_PLANTED_BUG_H_
#define TANDEM_TESTS_SIMULATOR_SCENARIO_PLANTED_BUG_H_

#include <cstdint>
#include <string_view>
#include <vector>

namespace tandem::simulator {

enum class PlantedBug : uint8_t {
  kNone,
  // Bugs of the router. The engine's commands and the replies to them are falsified on the way.
  kTokenEmittedTwiceAfterRecovery,
  kTokenLost,
  kNextTokenDropped,
  kTokensSwapped,
  kSourceMislabeled,
  kPromptTokenScoredTwice,
  kPromptTokenNotScored,
  kWriteAfterFinish,
  kFinishMissing,
  kFinishTwice,
  kCancelForgotten,
  kQueueOverfull,
  kStepRowsExceeded,
  kTwoBatchesInFlight,
  kCommandToClosedSession,
  kOldSessionReplyAccepted,
  kReplyTakenTwice,
  kSlotNotClosed,
  kEpochNotGrown,
  kCommandNumberReused,
  kCachedLenOneTooLong,
  kCachedLenOneTooShort,
  kCatchUpSkipsToken,
  kPreemptedRowsKept,
  kDraftsOfOtherPrefix,
  kFoundInRejectedTokens,
  kOldProposalUsed,
  kTreeJudgedAsChain,
  kTreeTooLarge,
  kPathOfSibling,
  kRejectionRowsBelieved,
  kSiblingRowsBelieved,
  kRingEntryReleasedTwice,
  kRingEntryNeverReleased,
  kRingReferenceDropped,
  kRingOfOtherDrafter,
  kRowsOfOtherDrafterBelieved,
  kDeadlineForgotten,
  kDeadlineInThePast,
  kRollbackNumberReused,
  kRollbackOneRowOff,
  kRollbackOfUnjudgedRows,
  kRollbackNeverSent,
  kPromoteForgotten,
  kModelRollBackForgotten,
  kUnloadForgotten,
  kOtherModelLoaded,
  kHeadsSwapForgotten,
  kOtherHeadsLoaded,
  // Bugs of the workers.
  kRollbackKeepsRow,
  kRollbackDropsRow,
  kRejectedRowsKept,
  kRowOfSiblingKept,
  kRowsMovedBackwards,
  kStaleEpochAccepted,
  kStaleCommandExecuted,
  kReplayOfOtherSlot,
  kRollbackNotStored,
  kHashNotChecked,
  kPageLeakedOnCancel,
  kPageFreedTwice,
  kFreePagesMiscounted,
  kCacheHitOfOtherTokens,
  kCacheSaltIgnored,
  kRingSequenceNotChecked,
  kHeadsLoadingForgotten,
  kPageLacksFeature,
  kFeaturesSurviveSwap,
  kStatesSurviveSwap,
  kTakenPageKeepsMark,
  kSlotsOutliveSession,
};

struct PlantedBugName {
  PlantedBug bug;
  std::string_view name;
};
// Returns all bugs without kNone.
const std::vector<PlantedBugName>& PlantedBugs();
std::string_view NameOf(PlantedBug bug);

}  // namespace tandem::simulator

#endif  // TANDEM_TESTS_SIMULATOR_SCENARIO_PLANTED_BUG_H_
