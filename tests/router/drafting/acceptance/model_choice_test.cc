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
  ModelChoice choice_{std::vector(3, AcceptanceEstimate(&prior_))};
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
