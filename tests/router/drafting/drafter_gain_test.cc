#include "services/router/drafting/drafter_gain.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tandem {
namespace {

// A pass of the verifier takes 10 ms, whatever its rows are, and 0.1 ms for each attended position.
RoundCosts Costs() {
  RoundCosts costs;
  costs.verify = costs.verify.Plus(0.01);
  costs.attended = 1e-4;
  return costs;
}

// The gain of a drafter whose rounds are all like this one.
std::optional<DrafterGain> GainOf(double tokens, double plain_tokens, uint64_t num_rounds = 30) {
  GainSums sums;
  for (uint64_t i = 0; i < num_rounds; ++i) sums.AddRound(tokens, plain_tokens);
  return sums.gain();
}

TEST(DrafterGainTest, ADrafterThatDoublesTheTimeAndGivesOneTokenHalvesTheSpeed) {
  const JudgedRows rows{.num_waiting = 1, .other_rows = 1, .draft_rows = 4};
  const DraftPrices prices = PricesOf(Costs(), rows, {.before = 0.01});
  EXPECT_DOUBLE_EQ(prices.second, 100);  // tokens of plain decoding in a second
  EXPECT_DOUBLE_EQ(prices.row, 0);
  const std::optional<DrafterGain> gain = GainOf(1, 1 + 0.01 * prices.second);
  ASSERT_TRUE(gain.has_value());
  EXPECT_DOUBLE_EQ(gain->ratio, 0.5);
  EXPECT_NEAR(gain->error, 0, 1e-9) << "all rounds are alike";
}

TEST(DrafterGainTest, ThreeTokensInOneAndAHalfRoundsAreTwiceAsFast) {
  // The five rows attend to 50 positions, which takes half of a plain round.
  const JudgedRows rows{.num_waiting = 1, .other_rows = 1, .draft_rows = 5, .draft_attended = 50};
  const DraftPrices prices = PricesOf(Costs(), rows, {});
  EXPECT_NEAR(prices.row, 0.1, 1e-12);
  const std::optional<DrafterGain> gain = GainOf(3, 1 + 5 * prices.row);
  ASSERT_TRUE(gain.has_value());
  EXPECT_NEAR(gain->ratio, 2, 1e-12);
}

TEST(DrafterGainTest, FewDraftsShowNothing) {
  EXPECT_FALSE(GainSums().gain().has_value());
  EXPECT_FALSE(GainOf(3, 1.5, GainSums::kLeastDrafts - 1).has_value());
  EXPECT_TRUE(GainOf(3, 1.5, GainSums::kLeastDrafts).has_value());
  GainSums in_vain;
  for (int i = 0; i < 1000; ++i) in_vain.AddWork(1);
  EXPECT_FALSE(in_vain.gain().has_value()) << "work is no draft";
}

TEST(DrafterGainTest, AllSlotsThatWaitAreCharged) {
  JudgedRows rows{.num_waiting = 4, .other_rows = 4, .draft_rows = 5, .draft_attended = 50};
  const DraftPrices prices = PricesOf(Costs(), rows, {.before = 0.01, .beside = 0.005});
  EXPECT_DOUBLE_EQ(prices.second, 400);
  EXPECT_NEAR(prices.row, 0.4, 1e-12);
  // One slot has the rows, another one the draft of 10 ms, and the proposals for a third took 5 ms.
  // The fourth is plain. What all are charged is what the round gave beside plain decoding.
  const double plain_tokens =
      (1 + 5 * prices.row) + (1 + 0.01 * prices.second) + (1 + 0.005 * prices.second) + 1;
  const double round_over_plain = (0.01 + 0.005 + 0.01 + 0.005) / 0.01;
  EXPECT_NEAR(plain_tokens, 4 * round_over_plain, 1e-9);
}

TEST(DrafterGainTest, PromptsInTheRoundDoNotHideDrafts) {
  // 32 rows of a prompt attend to 1000 positions, so that the pass takes 0.11 s without drafts.
  const JudgedRows rows{.num_waiting = 1,
                        .other_rows = 33,
                        .other_attended = 1000,
                        .draft_rows = 5,
                        .draft_attended = 50};
  const DraftPrices prices = PricesOf(Costs(), rows, {.before = 0.01});
  EXPECT_DOUBLE_EQ(prices.second, 100) << "of plain rounds without the prompt";
  EXPECT_NEAR(prices.row, 0.1, 1e-12);
}

TEST(DrafterGainTest, RoundsThatOverlapTakeTheLongerTime) {
  const JudgedRows rows{.num_waiting = 1, .other_rows = 1, .draft_rows = 4};
  const auto charged = [&](double before) {
    const DraftPrices prices = PricesOf(Costs(), rows, {.before = before, .overlapped = true});
    return before * prices.second;
  };
  EXPECT_NEAR(charged(0.008), 0, 1e-9) << "the other cohort's Verify takes longer";
  EXPECT_NEAR(charged(0.015), 0.5, 1e-9) << "5 ms more than that";
}

TEST(DrafterGainTest, TheIntervalIsThatOfTheRounds) {
  GainSums sums;
  for (int i = 0; i < 100; ++i) sums.AddRound(i % 2 == 0 ? 1 : 3, 1);
  const std::optional<DrafterGain> gain = sums.gain();
  ASSERT_TRUE(gain.has_value());
  EXPECT_DOUBLE_EQ(gain->ratio, 2);
  // Rounds differ from the mean by one token: the standard error is 1 / sqrt(99).
  EXPECT_NEAR(gain->error, 1.96 / std::sqrt(99), 1e-9);
  // Rounds that give more where they cost more say nothing else about the ratio.
  GainSums in_proportion;
  for (int i = 0; i < 100; ++i) in_proportion.AddRound(2 + 2 * (i % 3), 1 + i % 3);
  ASSERT_TRUE(in_proportion.gain().has_value());
  EXPECT_DOUBLE_EQ(in_proportion.gain()->ratio, 2);
  EXPECT_NEAR(in_proportion.gain()->error, 0, 1e-6);
}

TEST(DrafterGainTest, WorkWithoutADraftLowersTheGain) {
  GainSums sums;
  for (int i = 0; i < 50; ++i) {
    sums.AddWork(0.5);
    sums.AddRound(3, 1);
  }
  ASSERT_TRUE(sums.gain().has_value());
  EXPECT_DOUBLE_EQ(sums.gain()->ratio, 2);
  EXPECT_NEAR(sums.gain()->error, 0, 1e-6) << "all rounds are alike, with the work before them";
  EXPECT_EQ(sums.num_drafts(), 50u);
}

TEST(DrafterGainTest, ADifferenceHasTheRoundsBetween) {
  GainSums sums;
  for (int i = 0; i < 100; ++i) sums.AddRound(1, 2);
  const GainSums before = sums;
  EXPECT_FALSE(sums.Since(before).gain().has_value());
  for (int i = 0; i < 40; ++i) sums.AddRound(3, 1.5);
  const std::optional<DrafterGain> gain = sums.Since(before).gain();
  ASSERT_TRUE(gain.has_value());
  EXPECT_DOUBLE_EQ(gain->ratio, 2);
  EXPECT_EQ(sums.Since(before).num_drafts(), 40u);
}

TEST(DrafterGainTest, UnknownCostsHaveNoPrice) {
  const DraftPrices prices = PricesOf(RoundCosts(), {.num_waiting = 1, .draft_rows = 4}, {});
  EXPECT_EQ(prices.row, 0);
  EXPECT_EQ(prices.second, 0);
}

}  // namespace
}  // namespace tandem
