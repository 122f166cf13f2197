#include "services/router/drafting/lookup/pace.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

constexpr double kPlain = 0.01;

TEST(PaceTest, IsThatOfTheRoundsAfterOnesWithoutAMatch) {
  Pace pace;
  double now = 5;
  const auto round = [&](double seconds, double tokens, bool had_match) {
    pace.OnSearch(had_match);
    pace.OnRound(now += seconds, tokens, kPlain);
  };
  round(0.02, 6, true);
  round(0.02, 6, true);
  EXPECT_EQ(pace.tokens_per_plain_round(), 0) << "no round followed one without a match";
  for (int i = 0; i < 40; ++i) {
    round(0.01, 1, false);
    round(0.02, 8, true);
    round(0.03, 2, true);
  }
  EXPECT_NEAR(pace.tokens_per_plain_round(), 8 / 2.0, 0.01);
  // Every second place has a match, and drafts are worse.
  for (int i = 0; i < 160; ++i) round(0.02, 3, i % 2 == 0);
  EXPECT_NEAR(pace.tokens_per_plain_round(), 3 / 2.0, 0.1);
}

TEST(PaceTest, IsOfNoInterestWhereMatchesHardlyEverFollow) {
  Pace pace;
  double now = 5;
  const auto rounds = [&](int num_rounds, int matches_in_ten) {
    for (int i = 0; i < num_rounds; ++i) {
      pace.OnSearch(i % 10 < matches_in_ten);
      pace.OnRound(now += 0.01, 4, kPlain);
    }
  };
  rounds(100, 0);
  EXPECT_EQ(pace.tokens_per_plain_round(), 0) << "all rounds are alike";
  rounds(104, 5);
  EXPECT_NEAR(pace.tokens_per_plain_round(), 4, 1e-6);
  rounds(100, 0);
  EXPECT_EQ(pace.tokens_per_plain_round(), 0);
}

TEST(PaceTest, IsNeverSlowerThanPlainDecoding) {
  Pace pace;
  for (int i = 0; i < 10; ++i) {
    pace.OnSearch(i % 2 == 0);
    pace.OnRound(5 + 0.03 * i, 1, kPlain);
  }
  EXPECT_EQ(pace.tokens_per_plain_round(), 1);
}

TEST(PaceTest, WaitsAndRoundsWithoutASearchDoNotCount) {
  Pace pace;
  double now = 5;
  bool has_match = false;
  const auto round = [&](double seconds, double tokens) {
    pace.OnSearch(has_match = !has_match);
    pace.OnRound(now += seconds, tokens, kPlain);
  };
  for (int i = 0; i < 10; ++i) round(0.02, 6);
  for (int i = 0; i < 10; ++i) round(60, 1);
  for (int i = 0; i < 10; ++i) round(1e-9, 1);
  EXPECT_NEAR(pace.tokens_per_plain_round(), 3, 1e-6);
  pace.OnRound(now += 0.02, 6, kPlain);
  for (int i = 0; i < 10; ++i) pace.OnRound(now += 0.02, 1, kPlain);
  EXPECT_NEAR(pace.tokens_per_plain_round(), 3, 1e-6);
}

TEST(PaceTest, NothingIsKnownBeforePlainRoundsWereMeasured) {
  Pace pace;
  for (int i = 0; i < 10; ++i) {
    pace.OnSearch(false);
    pace.OnRound(5 + i, 3, 0);
  }
  EXPECT_EQ(pace.tokens_per_plain_round(), 0);
}

}  // namespace
}  // namespace tandem
