// Tests that trees of draft tokens do not change the output distribution. The first two tokens of
// 200,000 requests are drawn through AcceptReject, and compared with their exact distribution under
// the target alone. Mistakes that are planted are caught with the same number of draws.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "tests/kernels/sampling/distribution/goodness_of_fit.h"
#include "tests/kernels/sampling/distribution/speculative_decoder.h"
#include "tests/kernels/sampling/distribution/synthetic_model.h"
#include "tests/kernels/sampling/distribution/tree_decoder.h"
#include "tests/kernels/sampling/param_sets.h"

namespace tandem::testing::tree_distribution_test {
namespace {

constexpr int32_t kVocabularySize = 7;
constexpr int32_t kNumTokens = 2;

// A worse drafter has more rejected siblings, where some mistakes are.
TreeScenario ScenarioOf(TreeKind kind, TreeMistake mistake = TreeMistake::kNone) {
  const SyntheticModel target(kVocabularySize, 11);
  const float spread = mistake == TreeMistake::kNone ? 0.7f : 1.5f;
  return {target, {target.Perturbed(13, spread), target.Perturbed(14, spread)}, kind, mistake};
}

// Returns the p-value of the outputs of requests with seeds 0, 1, 2, …
double PValueOf(const TreeScenario& scenario, SamplingParams params, TreeDecoder& decoder) {
  std::vector<int64_t> counts(kVocabularySize * kVocabularySize);
  for (int64_t draw = 0; draw < kNumDraws; ++draw) {
    params.seed = static_cast<uint64_t>(draw);
    decoder.Start(params, kPrompt);
    while (decoder.output().size() < kNumTokens) decoder.Round();
    ++counts[static_cast<size_t>(decoder.output()[0] * kVocabularySize + decoder.output()[1])];
  }
  return GTestPValue(EnumerateTarget(scenario.target, params, kNumTokens), counts);
}

class TreeDistributionTest : public ::testing::TestWithParam<std::tuple<ParamSet, TreeKind>> {};

TEST_P(TreeDistributionTest, IsThatOfTheTarget) {
  auto [set, kind] = GetParam();
  set.params.reproducible = kind == TreeKind::kCoupled;
  const TreeScenario scenario = ScenarioOf(kind);
  TreeDecoder decoder(scenario);
  EXPECT_GT(PValueOf(scenario, set.params, decoder), kFalseAlarmRate);
  EXPECT_GT(decoder.num_from_siblings(), kNumDraws / 100) << "siblings are accepted too";
}

INSTANTIATE_TEST_SUITE_P(
    All, TreeDistributionTest,
    ::testing::Combine(::testing::ValuesIn(AllParamSets()),
                       ::testing::Values(TreeKind::kFound, TreeKind::kWithReplacement,
                                         TreeKind::kWithoutReplacement, TreeKind::kTwoDrafters,
                                         TreeKind::kDrawnThenFound, TreeKind::kCoupled)),
    [](const auto& test) {
      return std::get<0>(test.param).name + NameOf(std::get<1>(test.param));
    });

// A found tree, and a coupled one, give the tokens of plain decoding.
TEST(TreeOutputTest, FoundAndCoupledTreesChangeNoToken) {
  for (const ParamSet& set : AllParamSets()) {
    for (const TreeKind kind : {TreeKind::kFound, TreeKind::kCoupled}) {
      SamplingParams params = set.params;
      params.reproducible = kind == TreeKind::kCoupled;
      TreeDecoder decoder(ScenarioOf(kind));
      TreeScenario plain_scenario = ScenarioOf(kind, TreeMistake::kDraftsByOwnDraw);
      for (uint64_t seed = 0; seed < 50; ++seed) {
        params.seed = seed;
        decoder.Start(params, kPrompt);
        while (decoder.output().size() < 12) decoder.Round();
        // Another tree in each round gives the same tokens. Many rounds have no tree at all.
        TreeDecoder other(plain_scenario);
        other.Start(params, kPrompt);
        while (other.output().size() < 12) other.Round();
        for (size_t i = 0; i < 12; ++i) {
          ASSERT_EQ(decoder.output()[i], other.output()[i]) << set.name << NameOf(kind) << seed;
        }
      }
    }
  }
}

// Returns how many of 50 requests have another output with the mistake than plain decoding gives.
int NumChanged(TreeMistake mistake) {
  constexpr size_t kOutputTokens = 12;
  SamplingParams params;
  params.reproducible = true;
  int changed = 0;
  for (params.seed = 0; params.seed < 50; ++params.seed) {
    TreeDecoder decoder(ScenarioOf(TreeKind::kCoupled, mistake));
    decoder.Start(params, kPrompt);
    while (decoder.output().size() < kOutputTokens) decoder.Round();
    SpeculativeDecoder plain(ScenarioOf(TreeKind::kCoupled).target, std::nullopt, MixedDraftLength);
    const std::vector<int32_t> expected = plain.Generate(params, kOutputTokens);
    const auto output = decoder.output().first(kOutputTokens);
    changed += std::equal(expected.begin(), expected.end(), output.begin()) ? 0 : 1;
  }
  return changed;
}

// The target's noise belongs to the position. With noise of its own for each node, the output keeps
// its distribution, and only its tokens show the mistake: they depend on the trees.
TEST(NoisePerNodeTest, ChangesTheTokensAndNotTheirDistribution) {
  EXPECT_EQ(NumChanged(TreeMistake::kNone), 0);
  EXPECT_GT(NumChanged(TreeMistake::kNoisePerNode), 25);
  SamplingParams params;
  params.reproducible = true;
  const TreeScenario scenario = ScenarioOf(TreeKind::kCoupled, TreeMistake::kNoisePerNode);
  TreeDecoder decoder(scenario);
  EXPECT_GT(PValueOf(scenario, params, decoder), kFalseAlarmRate);
}

struct Planted {
  TreeKind kind;
  TreeMistake mistake;
};

class PlantedTreeMistakeTest : public ::testing::TestWithParam<Planted> {};

TEST_P(PlantedTreeMistakeTest, IsCaught) {
  const TreeScenario scenario = ScenarioOf(GetParam().kind, GetParam().mistake);
  TreeDecoder decoder(scenario);
  EXPECT_LT(PValueOf(scenario, SamplingParams(), decoder), kFalseAlarmRate);
}

INSTANTIATE_TEST_SUITE_P(
    All, PlantedTreeMistakeTest,
    ::testing::Values(Planted{TreeKind::kWithReplacement, TreeMistake::kSortsSiblings},
                      Planted{TreeKind::kWithReplacement, TreeMistake::kDropsDuplicates},
                      Planted{TreeKind::kTwoDrafters, TreeMistake::kSharesUniform},
                      Planted{TreeKind::kWithReplacement, TreeMistake::kDraftsByOwnDraw},
                      Planted{TreeKind::kFound, TreeMistake::kRowOfSibling},
                      Planted{TreeKind::kWithReplacement, TreeMistake::kRowOfSibling},
                      Planted{TreeKind::kWithoutReplacement, TreeMistake::kForgetsRejections},
                      Planted{TreeKind::kDrawnThenFound, TreeMistake::kFoundBeforeDrawn}),
    [](const auto& test) { return NameOf(test.param.kind) + NameOf(test.param.mistake); });

}  // namespace
}  // namespace tandem::testing::tree_distribution_test
