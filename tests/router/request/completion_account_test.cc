#include "services/router/request/completion_account.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(CompletionAccountTest, CountsPerPositionAndInTotal) {
  CompletionAccount account(0);
  account.AddDraftedRound({3, 3, 3, 3, Drafter::kModel}, "tiny");  // all tokens were accepted
  account.AddDraftedRound({3, 3, 1, 2, Drafter::kModel}, "tiny");  // the second token was rejected
  account.AddDraftedRound({2, 2, 0, 1, Drafter::kSuffix}, "suffix");
  account.AddPlainRound();
  v1::Completion completion;
  account.Fill(&completion);
  const v1::SpeculationStats& stats = completion.speculation();
  EXPECT_EQ(stats.num_drafts(), 3);
  EXPECT_EQ(stats.num_draft_tokens(), 8);
  EXPECT_EQ(stats.num_accepted_tokens(), 4);
  EXPECT_EQ(stats.num_tested_tokens(), 6);
  EXPECT_EQ(stats.num_plain_rounds(), 1);
  EXPECT_EQ(stats.drafter(), "suffix") << "the last one";
  ASSERT_EQ(stats.drafters_size(), 2);
  EXPECT_EQ(stats.drafters(0).name(), "model");
  EXPECT_EQ(stats.drafters(0).num_drafts(), 2);
  EXPECT_EQ(stats.drafters(0).num_accepted_tokens(), 4);
  EXPECT_EQ(stats.drafters(1).name(), "suffix");
  EXPECT_EQ(stats.drafters(1).num_draft_tokens(), 2);
  EXPECT_EQ(stats.drafters(1).num_tested_tokens(), 1);
  ASSERT_EQ(stats.num_accepted_tokens_per_position_size(), 3);
  EXPECT_EQ(stats.num_accepted_tokens_per_position(0), 2);
  EXPECT_EQ(stats.num_accepted_tokens_per_position(2), 1);
  EXPECT_EQ(stats.num_tested_tokens_per_position(0), 3);
  EXPECT_EQ(stats.num_tested_tokens_per_position(1), 2);
  EXPECT_DOUBLE_EQ(stats.acceptance_rate(), 0.5);
  EXPECT_DOUBLE_EQ(stats.mean_acceptance_length(), 1 + 4.0 / 3);
  EXPECT_DOUBLE_EQ(stats.alpha(), 4.0 / 6);
}

TEST(CompletionAccountTest, EachDraftModelIsCountedByItself) {
  CompletionAccount account(0);
  account.AddDraftedRound({3, 3, 3, 3, Drafter::kModel}, "tiny");
  account.AddDraftedRound({4, 4, 1, 2, Drafter::kModel}, "small");
  account.AddDraftedRound({2, 2, 1, 2, Drafter::kModel}, "tiny");
  v1::Completion completion;
  account.Fill(&completion);
  const v1::SpeculationStats& stats = completion.speculation();
  ASSERT_EQ(stats.drafters_size(), 2);
  EXPECT_EQ(stats.drafters(0).name(), "model");
  EXPECT_EQ(stats.drafters(0).model(), "small");
  EXPECT_EQ(stats.drafters(0).num_draft_tokens(), 4);
  EXPECT_EQ(stats.drafters(1).model(), "tiny");
  EXPECT_EQ(stats.drafters(1).num_drafts(), 2);
  EXPECT_EQ(stats.drafters(1).num_accepted_tokens(), 4);
}

TEST(CompletionAccountTest, WhatDraftersGainIsSummedOverRoundsWithKnownCosts) {
  CompletionAccount account(0);
  account.AddDraftedRound({3, 3, 3, 3, Drafter::kEagle, 4, 0}, "eagle");  // not known yet
  account.AddDraftedRound({3, 3, 2, 3, Drafter::kEagle, 3, 1.25}, "eagle");
  account.AddDraftedRound({3, 3, 0, 1, Drafter::kEagle, 1, 1.25}, "eagle");
  account.AddDraftingWork(Drafter::kEagle, 0.5);
  account.AddDraftingWork(Drafter::kMedusa, 0.5);
  v1::Completion completion;
  account.Fill(&completion);
  ASSERT_EQ(completion.speculation().drafters_size(), 1) << "the other one drafted nothing";
  const v1::DrafterStats& eagle = completion.speculation().drafters(0);
  EXPECT_EQ(eagle.num_drafts(), 3);
  EXPECT_EQ(eagle.num_round_tokens(), 4);
  EXPECT_DOUBLE_EQ(eagle.num_plain_tokens(), 3);
}

TEST(CompletionAccountTest, PositionsOfATreeAreDepths) {
  CompletionAccount account(0);
  account.AddDraftedRound({9, 3, 2, 3, Drafter::kSuffix}, "suffix");  // nine tokens in three levels
  account.AddDraftedRound({2, 2, 1, 2, Drafter::kSuffix}, "suffix");
  v1::Completion completion;
  account.Fill(&completion);
  const v1::SpeculationStats& stats = completion.speculation();
  EXPECT_EQ(stats.num_trees(), 1);
  EXPECT_EQ(stats.num_draft_tokens(), 11);
  EXPECT_EQ(stats.num_accepted_tokens(), 3);
  EXPECT_EQ(stats.num_tested_tokens(), 5);
  ASSERT_EQ(stats.num_tested_tokens_per_position_size(), 3);
  EXPECT_EQ(stats.num_tested_tokens_per_position(1), 2);
  EXPECT_EQ(stats.num_accepted_tokens_per_position(1), 1);
}

TEST(CompletionAccountTest, TokensOfAPredictionAreCounted) {
  CompletionAccount account(0);
  account.AddDraftedRound({8, 8, 3, 4, Drafter::kPrediction}, "prediction");
  account.AddDraftedRound({8, 8, 8, 8, Drafter::kPrediction}, "prediction");
  account.AddDraftedRound({4, 4, 4, 4, Drafter::kModel}, "tiny");
  v1::Completion completion;
  account.Fill(&completion);
  EXPECT_EQ(completion.usage().accepted_prediction_tokens(), 11);
  EXPECT_EQ(completion.usage().rejected_prediction_tokens(), 1);
}

TEST(CompletionAccountTest, SplitsTheTimeOfDecoding) {
  CompletionAccount account(10);
  account.Admitted(12);
  account.Verified(2, 1.5);  // prefill: counts only in prefill_seconds
  account.Emitted(15);
  account.Drafted(0.5, 0.375);
  account.Verified(1, 0.875);
  account.Emitted(17);
  v1::Completion completion;
  account.Fill(&completion);
  const v1::Timings& timings = completion.timings();
  EXPECT_DOUBLE_EQ(timings.queue_seconds(), 2);
  EXPECT_DOUBLE_EQ(timings.prefill_seconds(), 3);
  EXPECT_DOUBLE_EQ(timings.time_to_first_token_seconds(), 5);
  EXPECT_DOUBLE_EQ(timings.decode_seconds(), 2);
  EXPECT_DOUBLE_EQ(timings.draft_seconds(), 0.375);
  EXPECT_DOUBLE_EQ(timings.verify_seconds(), 0.875);
  EXPECT_DOUBLE_EQ(timings.transfer_seconds(), 0.25);
  EXPECT_DOUBLE_EQ(timings.router_seconds(), 0.5);
}

}  // namespace
}  // namespace tandem
