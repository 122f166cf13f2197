#include "services/cli/chat/chat_totals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace tandem::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

v1::Completion AnswerOf(int tokens, int drafted, int accepted, const std::string& drafter) {
  v1::Completion completion;
  completion.mutable_usage()->set_prompt_tokens(10);
  completion.mutable_usage()->set_cached_prompt_tokens(4);
  completion.mutable_usage()->set_completion_tokens(tokens);
  completion.mutable_timings()->set_decode_seconds(0.5);
  completion.mutable_timings()->set_time_to_first_token_seconds(0.02);
  v1::SpeculationStats* stats = completion.mutable_speculation();
  if (drafted == 0) return completion;
  stats->set_num_drafts(1);
  stats->set_num_draft_tokens(drafted);
  stats->set_num_accepted_tokens(accepted);
  v1::DrafterStats* of_drafter = stats->add_drafters();
  of_drafter->set_name(drafter);
  if (drafter == "model") of_drafter->set_model("small");
  of_drafter->set_num_draft_tokens(drafted);
  of_drafter->set_num_accepted_tokens(accepted);
  return completion;
}

TEST(ChatTotals, AddAnswersAndDrafters) {
  ChatTotals totals;
  EXPECT_THAT(totals.Render(Palette(false)), HasSubstr("answers       0"));
  totals.Add(AnswerOf(51, 20, 15, "model"));
  totals.Add(AnswerOf(51, 30, 10, "suffix"));
  totals.Add(AnswerOf(51, 10, 10, "suffix"));
  totals.AddStopped(7);
  const std::string text = totals.Render(Palette(false));
  EXPECT_THAT(text, HasSubstr("3, and 1 stopped after 7 tokens\n"));
  EXPECT_THAT(text, HasSubstr("153 in answers, 30 in prompts (12 of them found in the cache)"));
  EXPECT_THAT(text, HasSubstr("100 tokens/s; first token after 20.0 ms on average"));
  EXPECT_THAT(text, HasSubstr("58 % of drafted (35 of 60)"));
  EXPECT_THAT(text, HasSubstr("small          15 of 20 drafted tokens accepted"));
  EXPECT_THAT(text, HasSubstr("suffix         20 of 40 drafted tokens accepted"));
}

TEST(ChatTotals, OneTokenIsSingular) {
  ChatTotals totals;
  totals.AddStopped(1);
  EXPECT_THAT(totals.Render(Palette(false)), HasSubstr("0, and 1 stopped after 1 token\n"));
  totals.AddStopped(1);
  EXPECT_THAT(totals.Render(Palette(false)), HasSubstr("2 stopped after 2 tokens together\n"));
}

TEST(ChatTotals, AnAnswerHasALine) {
  EXPECT_EQ(AnswerCosts(AnswerOf(51, 20, 15, "model")),
            "51 tokens, 100 tokens/s, 75 % of drafted tokens accepted, first token after 20.0 ms");
  EXPECT_THAT(AnswerCosts(AnswerOf(1, 0, 0, "")), Not(HasSubstr("accepted")));
  EXPECT_THAT(AnswerCosts(AnswerOf(1, 0, 0, "")), HasSubstr("1 token, "));
}

}  // namespace
}  // namespace tandem::cli
