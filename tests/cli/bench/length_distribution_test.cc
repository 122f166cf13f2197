#include "services/cli/bench/serve/length_distribution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace tandem::cli {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;

constexpr int kNoLimit = 1 << 24;

std::vector<int> Draws(const std::string& text, int count, int limit = kNoLimit) {
  const auto lengths = LengthDistribution::Parse(text);
  EXPECT_TRUE(lengths.ok()) << lengths.status();
  if (!lengths.ok()) return {1};
  std::mt19937_64 random(1);
  std::vector<int> draws;
  for (int i = 0; i < count; ++i) draws.push_back(lengths->Draw(random, limit));
  return draws;
}

TEST(LengthDistributionTest, FixedIsAlwaysTheSame) {
  EXPECT_THAT(Draws("fixed:12", 100), Each(12));
  EXPECT_THAT(Draws("12", 100), Each(12));
}

// Each count is binomial with mean 1000 and deviation 28.9. The limit of 170 is 5.9 deviations.
// With other seeds, one of six counts would exceed it once in 10^8 runs. The count of an end that
// is never drawn differs by 1000.
TEST(LengthDistributionTest, UniformDrawsBothEndsWithTheFrequencyOfTheMiddle) {
  std::vector<int> counts(6);
  for (int length : Draws("uniform:5-10", 6000)) {
    ASSERT_THAT(length, AllOf(Ge(5), Le(10)));
    ++counts[length - 5];
  }
  EXPECT_THAT(counts, Each(AllOf(Ge(830), Le(1170))));
}

// The mean of the logarithms has a deviation of 0.5 / sqrt(1000) = 0.016 around ln 100. Six
// deviations are 0.095. The deviation of the logarithms is likewise within 6 * 0.5 / sqrt(2000) =
// 0.067.
TEST(LengthDistributionTest, LognormalHasTheRequestedMedianAndSpread) {
  const std::vector<int> draws = Draws("lognormal:100,0.5", 1000);
  double mean = 0;
  double squares = 0;
  for (int length : draws) mean += std::log(length) / 1000;
  for (int length : draws) squares += std::pow(std::log(length) - mean, 2) / 999;
  EXPECT_NEAR(mean, std::log(100), 0.095);
  EXPECT_NEAR(std::sqrt(squares), 0.5, 0.067);
}

TEST(LengthDistributionTest, NothingIsUnderOneOrOverTheLimit) {
  EXPECT_THAT(Draws("lognormal:2,3", 1000, 50), Each(AllOf(Ge(1), Le(50))));
  EXPECT_THAT(Draws("uniform:1-100", 1000, 7), Each(Le(7)));
  EXPECT_THAT(Draws("fixed:9", 3, 4), Each(4));
}

TEST(LengthDistributionTest, TheSameSeedDrawsTheSameLengths) {
  EXPECT_EQ(Draws("lognormal:50,1", 20), Draws("lognormal:50,1", 20));
}

TEST(LengthDistributionTest, ATextThatIsNoDistributionIsRefused) {
  for (const char* text :
       {"", "fixed:", "fixed:0", "fixed:-3", "fixed:3x", "many", "uniform:5", "uniform:9-5",
        "uniform:0-5", "uniform:1-2-3", "lognormal:5", "lognormal:0,1", "lognormal:5,-1",
        "lognormal:5,nan", "lognormal:5,9", "normal:5,1", "fixed:99999999999"}) {
    const auto lengths = LengthDistribution::Parse(text);
    ASSERT_FALSE(lengths.ok()) << text;
    EXPECT_THAT(std::string(lengths.status().message()),
                HasSubstr("got \"" + std::string(text) + "\", want fixed:N"));
  }
}

}  // namespace
}  // namespace tandem::cli
