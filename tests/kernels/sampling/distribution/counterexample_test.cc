// Tests the counterexamples: with the rule kept, the token has the target's distribution. With the
// rule broken, it has the distribution that is stated, and the same number of draws finds that.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/kernels/sampling/distribution/counterexample.h"
#include "tests/kernels/sampling/distribution/goodness_of_fit.h"

namespace tandem::testing::counterexample_test {
namespace {

std::vector<int64_t> Draw(const Counterexample& example, bool breaks_rule) {
  std::vector<int64_t> counts(example.target.size());
  for (int64_t draw = 0; draw < kNumDraws; ++draw) {
    const int32_t token_id = example.draw(static_cast<uint64_t>(draw), breaks_rule).token_id;
    ++counts[static_cast<size_t>(token_id)];
  }
  return counts;
}

class CounterexampleTest : public ::testing::TestWithParam<Counterexample> {};

TEST_P(CounterexampleTest, TheRuleKeepsTheDistribution) {
  EXPECT_GT(GTestPValue(GetParam().target, Draw(GetParam(), /*breaks_rule=*/false)),
            kFalseAlarmRate);
}

TEST_P(CounterexampleTest, TheBrokenRuleGivesTheStatedFigureAndIsCaught) {
  const std::vector<int64_t> counts = Draw(GetParam(), /*breaks_rule=*/true);
  EXPECT_LT(GTestPValue(GetParam().target, counts), kFalseAlarmRate);
  EXPECT_GT(GTestPValue(GetParam().biased, counts), kFalseAlarmRate);
}

INSTANTIATE_TEST_SUITE_P(All, CounterexampleTest,
                         ::testing::Values(SortedSiblings(), SharedUniform(), DroppedDuplicate(),
                                           FoundFirst(), EarlierDraft(), Prediction()),
                         [](const auto& test) { return test.param.name; });

// The figures as they are usually told, within six standard deviations of what is drawn.
TEST(CounterexampleFigureTest, IsTheOneThatIsTold) {
  struct Told {
    Counterexample example;
    size_t token;
    double figure;
    double rounding;
  };
  const Told told[] = {{SortedSiblings(), 0, 1, 0},      {SharedUniform(), 1, 0.157, 0.0005},
                       {DroppedDuplicate(), 1, 0.23, 0}, {FoundFirst(), 0, 0.625, 0},
                       {EarlierDraft(), 0, 0.75, 0},     {Prediction(), 0, 0.82, 0}};
  for (const auto& [example, token, figure, rounding] : told) {
    const auto draws = static_cast<double>(kNumDraws);
    const double share = static_cast<double>(Draw(example, /*breaks_rule=*/true)[token]) / draws;
    const double six_sigma = 6 * std::sqrt(figure * (1 - figure) / draws);
    EXPECT_NEAR(share, figure, rounding + six_sigma) << example.name;
    EXPECT_GT(std::abs(share - example.target[token]), 5 * six_sigma) << example.name;
  }
}

// The rule min(1, p/q) is no mistake by itself: with a seed for each request, it is right too.
TEST(PredictionTest, NeedsOneSeedForSeveralRequestsToBeBiased) {
  const Counterexample example = PredictionWithOwnSeeds();
  EXPECT_GT(GTestPValue(example.target, Draw(example, /*breaks_rule=*/true)), kFalseAlarmRate);
}

}  // namespace
}  // namespace tandem::testing::counterexample_test
