#include "services/router/drafting/acceptance/sibling_gains.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace tandem::sibling_gains_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class SiblingGainsTest : public ::testing::Test {
 protected:
  // Each token has three siblings. A quarter of the first ones is accepted, an eighth of the second
  // ones, and none of the third ones.
  SiblingGainsTest() {
    for (int i = 0; i < 4000; ++i) {
      const int32_t accepted = i % 8 < 2 ? 1 : i % 8 == 2 ? 2 : 0;
      const JudgedPosition judged{.num_children = 4, .accepted = accepted};
      prior_.Observe(std::span(&judged, 1));
      estimate_.Observe(std::span(&judged, 1));
    }
  }
  std::vector<std::pair<uint32_t, uint32_t>> Rank(std::vector<double> gains, size_t most,
                                                  double least_gain) const {
    std::vector<std::pair<uint32_t, uint32_t>> ranked;  // position, and percent
    for (const SiblingGain& sibling : RankSiblings(estimate_, gains, most, least_gain)) {
      ranked.emplace_back(sibling.position, static_cast<uint32_t>(100 * sibling.gain + 0.5));
    }
    return ranked;
  }

  AcceptancePrior prior_;
  AcceptanceEstimate estimate_{&prior_};
};

TEST_F(SiblingGainsTest, AreRankedByTheChanceThatTheirPositionIsReached) {
  const auto ranked = Rank({0.6, 0.4}, 16, 0.05);
  ASSERT_EQ(ranked.size(), 4u);
  // At most as the estimate has it: about 0.25 and 0.13 of what reaches the position.
  EXPECT_EQ(ranked[0].first, 0u);
  EXPECT_NEAR(ranked[0].second, 25, 3);
  EXPECT_EQ(ranked[1].first, 1u);
  EXPECT_NEAR(ranked[1].second, 15, 3);
  EXPECT_EQ(ranked[2].first, 0u);
  EXPECT_EQ(ranked[3].first, 1u);
  EXPECT_EQ(Rank({0.6, 0.4}, 2, 0.05).size(), 2u);
  EXPECT_THAT(Rank({0.6, 0.4}, 16, 0.5), IsEmpty());
}

TEST_F(SiblingGainsTest, NoneIsLikelierThanTheTokenBesideIt) {
  const auto ranked = Rank({0.1, 0.01}, 16, 0.001);
  EXPECT_EQ(ranked[0], (std::pair<uint32_t, uint32_t>(0, 10)));
  for (const auto& [position, percent] : ranked) EXPECT_LE(percent, position == 0 ? 10u : 1u);
}

TEST_F(SiblingGainsTest, TheFirstOnesWithinAChainAreCountedByPosition) {
  const std::vector<SiblingGain> siblings = {{0, 0.3}, {2, 0.2}, {0, 0.1}, {1, 0.05}};
  EXPECT_THAT(SiblingsByPosition(siblings, 3, 4), ElementsAre(2, 1, 1));
  EXPECT_THAT(SiblingsByPosition(siblings, 3, 2), ElementsAre(1, 0, 1));
  EXPECT_THAT(SiblingsByPosition(siblings, 2, 3), ElementsAre(2, 1)) << "position 2 is too deep";
  EXPECT_THAT(SiblingsByPosition(siblings, 3, 0), IsEmpty());
}

}  // namespace
}  // namespace tandem::sibling_gains_test
