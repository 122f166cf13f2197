#include "tests/simulator/scenario/planted_bug.h"

namespace tandem::simulator {

const std::vector<PlantedBugName>& PlantedBugs() {
  using enum PlantedBug;
  static const std::vector<PlantedBugName> bugs = {
      {kTokenEmittedTwiceAfterRecovery, "token_emitted_twice_after_recovery"},
      {kTokenLost, "token_lost"},
      {kNextTokenDropped, "next_token_dropped"},
      {kTokensSwapped, "tokens_swapped"},
      {kSourceMislabeled, "source_mislabeled"},
      {kPromptTokenScoredTwice, "prompt_token_scored_twice"},
      {kPromptTokenNotScored, "prompt_token_not_scored"},
      {kWriteAfterFinish, "write_after_finish"},
      {kFinishMissing, "finish_missing"},
      {kFinishTwice, "finish_twice"},
      {kCancelForgotten, "cancel_forgotten"},
      {kQueueOverfull, "queue_overfull"},
      {kStepRowsExceeded, "step_rows_exceeded"},
      {kTwoBatchesInFlight, "two_batches_in_flight"},
      {kCommandToClosedSession, "command_to_closed_session"},
      {kOldSessionReplyAccepted, "old_session_reply_accepted"},
      {kReplyTakenTwice, "reply_taken_twice"},
      {kSlotNotClosed, "slot_not_closed"},
      {kEpochNotGrown, "epoch_not_grown"},
      {kCommandNumberReused, "command_number_reused"},
      {kCachedLenOneTooLong, "cached_len_one_too_long"},
      {kCachedLenOneTooShort, "cached_len_one_too_short"},
      {kCatchUpSkipsToken, "catch_up_skips_token"},
      {kPreemptedRowsKept, "preempted_rows_kept"},
      {kDraftsOfOtherPrefix, "drafts_of_other_prefix"},
      {kFoundInRejectedTokens, "found_in_rejected_tokens"},
      {kOldProposalUsed, "old_proposal_used"},
      {kTreeJudgedAsChain, "tree_judged_as_chain"},
      {kTreeTooLarge, "tree_too_large"},
      {kPathOfSibling, "path_of_sibling"},
      {kRejectionRowsBelieved, "rejection_rows_believed"},
      {kSiblingRowsBelieved, "sibling_rows_believed"},
      {kRingEntryReleasedTwice, "ring_entry_released_twice"},
      {kRingEntryNeverReleased, "ring_entry_never_released"},
      {kRingReferenceDropped, "ring_reference_dropped"},
      {kRingOfOtherDrafter, "ring_of_other_drafter"},
      {kRowsOfOtherDrafterBelieved, "rows_of_other_drafter_believed"},
      {kDeadlineForgotten, "deadline_forgotten"},
      {kDeadlineInThePast, "deadline_in_the_past"},
      {kRollbackNumberReused, "rollback_number_reused"},
      {kRollbackOneRowOff, "rollback_one_row_off"},
      {kRollbackOfUnjudgedRows, "rollback_of_unjudged_rows"},
      {kRollbackNeverSent, "rollback_never_sent"},
      {kPromoteForgotten, "promote_forgotten"},
      {kModelRollBackForgotten, "model_roll_back_forgotten"},
      {kUnloadForgotten, "unload_forgotten"},
      {kOtherModelLoaded, "other_model_loaded"},
      {kHeadsSwapForgotten, "heads_swap_forgotten"},
      {kOtherHeadsLoaded, "other_heads_loaded"},
      {kRollbackKeepsRow, "rollback_keeps_row"},
      {kRollbackDropsRow, "rollback_drops_row"},
      {kRejectedRowsKept, "rejected_rows_kept"},
      {kRowOfSiblingKept, "row_of_sibling_kept"},
      {kRowsMovedBackwards, "rows_moved_backwards"},
      {kStaleEpochAccepted, "stale_epoch_accepted"},
      {kStaleCommandExecuted, "stale_command_executed"},
      {kReplayOfOtherSlot, "replay_of_other_slot"},
      {kRollbackNotStored, "rollback_not_stored"},
      {kHashNotChecked, "hash_not_checked"},
      {kPageLeakedOnCancel, "page_leaked_on_cancel"},
      {kPageFreedTwice, "page_freed_twice"},
      {kFreePagesMiscounted, "free_pages_miscounted"},
      {kCacheHitOfOtherTokens, "cache_hit_of_other_tokens"},
      {kCacheSaltIgnored, "cache_salt_ignored"},
      {kRingSequenceNotChecked, "ring_sequence_not_checked"},
      {kHeadsLoadingForgotten, "heads_loading_forgotten"},
      {kPageLacksFeature, "page_lacks_feature"},
      {kFeaturesSurviveSwap, "features_survive_swap"},
      {kStatesSurviveSwap, "states_survive_swap"},
      {kTakenPageKeepsMark, "taken_page_keeps_mark"},
      {kSlotsOutliveSession, "slots_outlive_session"},
  };
  return bugs;
}

std::string_view NameOf(PlantedBug bug) {
  for (const PlantedBugName& named : PlantedBugs()) {
    if (named.bug == bug) return named.name;
  }
  return "none";
}

}  // namespace tandem::simulator
