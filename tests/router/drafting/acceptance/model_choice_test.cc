#include "services/router/drafting/acceptance/model_choice.h"

#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <vector>

namespace tandem {
namespace {

using Worths = std::array<std::optional<double>, 3>;

class ModelChoiceTest : public ::testing::Test {
 protected:
  AcceptancePrior prior_;
  TrialPrior trial_prior_;
  ModelChoice choice_{std::vector(3, AcceptanceEstimate(&prior_)),
                      std::vector(3, TrialSchedule(&trial_prior_))};
};

TEST_F(ModelChoiceTest, TheMostWorthWins) {
  EXPECT_EQ(choice_.current(), 0u);
  EXPECT_EQ(choice_.Choose(Worths{0.5, 0.9, 0.7}), 1u);
  EXPECT_EQ(choice_.current(), 1u);
  EXPECT_EQ(choice_.Choose(Worths{0.5, 0.1, 0.7}), 2u);
}

TEST_F(ModelChoiceTest, AModelIsNotChangedForALittle) {
  EXPECT_EQ(choice_.Choose(Worths{0.5, 0.54, 0.2}), 0u);
  EXPECT_EQ(choice_.Choose(Worths{0.5, 0.56, 0.2}), 1u);
  EXPECT_EQ(choice_.Choose(Worths{0.5, 0.46, 0.2}), 1u);
}

TEST_F(ModelChoiceTest, OnlyAModelThatCanDraftIsChosen) {
  EXPECT_EQ(choice_.Choose(Worths{std::nullopt, -3.0, std::nullopt}), 1u);
  EXPECT_EQ(choice_.Choose(Worths{}), std::nullopt);
  EXPECT_EQ(choice_.current(), 1u) << "it stays the last one";
}

TEST_F(ModelChoiceTest, ATrialLastsUntilDraftsWereJudged) {
  choice_.Try(2);
  EXPECT_EQ(choice_.Choose(Worths{9.0, 0.0, std::nullopt}), 0u) << "it cannot draft yet";
  EXPECT_FALSE(choice_.is_trial());
  for (int draft = 0; draft < 6; ++draft) {
    EXPECT_EQ(choice_.Choose(Worths{9.0, 0.0, -1.0}), 2u) << draft;
    EXPECT_TRUE(choice_.is_trial());
    EXPECT_EQ(choice_.Choose(Worths{9.0, 0.0, -1.0}), 2u) << "it caught up in the round before";
    choice_.OnJudged(0);  // a draft of another model
    choice_.OnJudged(2);
  }
  EXPECT_EQ(choice_.Choose(Worths{9.0, 0.0, -1.0}), 0u);
  EXPECT_FALSE(choice_.is_trial());
}

TEST_F(ModelChoiceTest, ATrialOfAModelThatNeverCatchesUpEnds) {
  choice_.Try(1);
  int rounds = 0;
  while (choice_.Choose(Worths{9.0, 0.0, 0.0}) == 1u) ++rounds;
  EXPECT_EQ(rounds, 64);
}

TEST_F(ModelChoiceTest, AModelThatDraftsAtOtherPlacesTakesNoTurns) {
  for (int round = 0; round < 100; ++round) {
    choice_.estimate(0).Observe({});
    if (round % 5 == 0) choice_.estimate(0).Observe(JudgedChain(2, 0));
    EXPECT_FALSE(choice_.IsDueBesideFound(0, /*num_slots=*/1)) << round;
  }
}

// Returns the rounds in which a model takes the turn of a draft that was found at every place.
std::vector<int> TurnsOf(ModelChoice choice, uint32_t num_slots, int num_rounds) {
  std::vector<int> turns;
  for (int round = 0; round < num_rounds; ++round) {
    if (!choice.IsDueBesideFound(1, num_slots)) {
      choice.estimate(1).Observe({});
      continue;
    }
    turns.push_back(round);
    choice.OnTurn(1, /*drafts=*/true);
    choice.estimate(1).Observe(JudgedChain(2, 1));
    choice.OnJudged(1);
  }
  return turns;
}

TEST_F(ModelChoiceTest, TurnsOfAModelBecomeRareAndDoNotEnd) {
  const std::vector<int> turns = TurnsOf(choice_, 1, 1000);
  EXPECT_EQ(turns.front(), 8);
  EXPECT_LT(turns.size(), 15u);
  EXPECT_GT(turns.back(), 800);
  EXPECT_LT(TurnsOf(choice_, 8, 1000).size(), turns.size()) << "all slots wait";
}

TEST_F(ModelChoiceTest, ATurnThatHadNoRoomComesAgainLater) {
  for (int round = 0; round < 8; ++round) choice_.estimate(1).Observe({});
  EXPECT_TRUE(choice_.IsDueBesideFound(1, 1));
  choice_.OnTurn(1, /*drafts=*/false);
  int waited = 0;
  while (!choice_.IsDueBesideFound(1, 1)) ++waited;
  EXPECT_EQ(waited, 16);
  for (int i = 0; i < 30; ++i) choice_.OnJudged(1);  // drafts at other places
  choice_.OnTurn(1, /*drafts=*/false);
  waited = 0;
  while (!choice_.IsDueBesideFound(1, 1)) ++waited;
  EXPECT_EQ(waited, 32) << "those drafts were no turns";
  for (int i = 0; i < 9; ++i) EXPECT_EQ(trial_prior_.NextFirstWait(), 0u) << "they were no trials";
}

TEST_F(ModelChoiceTest, FewRequestsBeginWithATurn) {
  for (int i = 0; i < 30; ++i) trial_prior_.Observe(false);
  int num_with_turns = 0;
  for (int request = 0; request < 24; ++request) {
    num_with_turns += TurnsOf(choice_, 1, 60).empty() ? 0 : 1;
  }
  EXPECT_EQ(num_with_turns, 3);
}

TEST(ModelToTryTest, EachModelHasItsTurnInFewRequests) {
  std::array<int, 3> tried = {};
  for (uint32_t request = 0; request < 24 * kRequestsPerModelTrial; ++request) {
    if (const auto model = ModelToTry(request, 3)) ++tried[*model];
  }
  EXPECT_EQ(tried, (std::array<int, 3>{8, 8, 8}));
  for (uint32_t request = 0; request < 100; ++request) {
    EXPECT_EQ(ModelToTry(request, 1), std::nullopt);
  }
}

}  // namespace
}  // namespace tandem
