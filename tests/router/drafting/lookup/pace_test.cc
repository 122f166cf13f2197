#include "services/router/drafting/lookup/pace.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

constexpr double kPlain = 0.01;

TEST(PaceTest, IsThatOfTheRoundsAfterOnesWithoutAMatch) {
  Pace pace;
  double now = 5;
  const auto round = [&](double seconds, double tokens, bool had_match) {
    pace.OnRound(now += seconds, tokens, kPlain, had_match);
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
  // The text has no matches any more.
  for (int i = 0; i < 80; ++i) round(0.02, 3, false);
  EXPECT_NEAR(pace.tokens_per_plain_round(), 3 / 2.0, 0.1);
}

TEST(PaceTest, IsNeverSlowerThanPlainDecodingAndIgnoresWaits) {
  Pace pace;
  double now = 5;
  for (int i = 0; i < 10; ++i) pace.OnRound(now += 0.03, 1, kPlain, false);
  EXPECT_EQ(pace.tokens_per_plain_round(), 1);
  for (int i = 0; i < 40; ++i) pace.OnRound(now += 60, 8, kPlain, false);
  EXPECT_NEAR(pace.tokens_per_plain_round(), 8 / 4.0, 0.2);
  for (int i = 0; i < 80; ++i) pace.OnRound(now += 1e-9, 1, kPlain, false);
  EXPECT_NEAR(pace.tokens_per_plain_round(), 1 / 0.5, 0.2);
}

TEST(PaceTest, NothingIsKnownBeforePlainRoundsWereMeasured) {
  Pace pace;
  for (int i = 0; i < 10; ++i) pace.OnRound(5 + i, 3, 0, false);
  EXPECT_EQ(pace.tokens_per_plain_round(), 0);
}

}  // namespace
}  // namespace tandem
