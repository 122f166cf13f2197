// Tests that speculation does not change the output distribution. The first three tokens of 200,000
// requests are drawn through the real draft draws and AcceptReject, and compared with their exact
// distribution under the target alone. See docs/sampling.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/sampling/reference.h"
#include "tests/kernels/sampling/distribution/goodness_of_fit.h"
#include "tests/kernels/sampling/distribution/speculative_decoder.h"
#include "tests/kernels/sampling/distribution/synthetic_model.h"
#include "tests/kernels/sampling/param_sets.h"

namespace tandem::testing::exact_distribution_test {
namespace {

constexpr int32_t kVocabularySize = 7;
constexpr int32_t kNumTokens = 3;

struct Pair {
  std::string name;
  SyntheticModel target;
  std::optional<Drafter> drafter;
};
void PrintTo(const Pair& pair, std::ostream* out) { *out << pair.name; }

std::vector<Pair> AllPairs() {
  const SyntheticModel target(kVocabularySize, 11);
  const SyntheticModel other(kVocabularySize, 12);
  std::vector<Pair> pairs;
  pairs.push_back({"NoDrafter", target, std::nullopt});
  pairs.push_back({"GoodDrafter", target, Drafter{target.Perturbed(13, 0.5f)}});
  pairs.push_back({"BadDrafter", target, Drafter{other}});
  pairs.push_back({"DisjointDrafter", target.Within(3, 7), Drafter{target.Within(0, 3)}});
  pairs.push_back({"TargetAsDrafter", target, Drafter{target}});
  pairs.push_back({"GreedyDrafter", target, Drafter{target.Perturbed(13, 0.5f), /*one_hot=*/true}});
  return pairs;
}

size_t CellOf(const std::vector<int32_t>& token_ids) {
  size_t cell = 0;
  for (int32_t id : token_ids) cell = cell * kVocabularySize + static_cast<size_t>(id);
  return cell;
}

// Returns the counts of each sequence over requests with seeds 0, 1, 2, …
std::vector<int64_t> DrawSequences(SpeculativeDecoder& decoder, SamplingParams params,
                                   int32_t num_tokens = kNumTokens) {
  std::vector<int64_t> counts(static_cast<size_t>(std::pow(kVocabularySize, num_tokens)));
  for (int64_t draw = 0; draw < kNumDraws; ++draw) {
    params.seed = static_cast<uint64_t>(draw);
    ++counts[CellOf(decoder.Generate(params, num_tokens))];
  }
  return counts;
}

class ExactDistributionTest : public ::testing::TestWithParam<std::tuple<ParamSet, Pair>> {};

TEST_P(ExactDistributionTest, SpeculationDrawsFromTheTarget) {
  const auto& [set, pair] = GetParam();
  SpeculativeDecoder decoder(pair.target, pair.drafter, MixedDraftLength);
  const std::vector<int64_t> counts = DrawSequences(decoder, set.params);
  EXPECT_GT(GTestPValue(EnumerateTarget(pair.target, set.params, kNumTokens), counts),
            kFalseAlarmRate);
  if (pair.name == "TargetAsDrafter") {
    EXPECT_EQ(decoder.num_accepted(), decoder.num_tested());
  }
  if (pair.name == "GoodDrafter") {
    EXPECT_GT(decoder.num_accepted(), decoder.num_tested() / 2);
  }
  if (pair.name == "DisjointDrafter") {
    EXPECT_EQ(decoder.num_accepted(), 0);
  }
}

std::string NameOf(const ::testing::TestParamInfo<std::tuple<ParamSet, Pair>>& test) {
  return std::get<0>(test.param).name + std::get<1>(test.param).name;
}

INSTANTIATE_TEST_SUITE_P(AllParameters, ExactDistributionTest,
                         ::testing::Combine(::testing::ValuesIn(AllParamSets()),
                                            ::testing::ValuesIn(AllPairs())),
                         NameOf);

class ReproducibleDistributionTest : public ::testing::TestWithParam<ParamSet> {};

TEST_P(ReproducibleDistributionTest, CoupledDrawsFollowTheTarget) {
  SamplingParams params = GetParam().params;
  params.reproducible = true;
  const SyntheticModel target(kVocabularySize, 11);
  SpeculativeDecoder decoder(target, Drafter{target.Perturbed(13, 0.5f)}, MixedDraftLength);
  const std::vector<int64_t> counts = DrawSequences(decoder, params);
  EXPECT_GT(GTestPValue(EnumerateTarget(target, params, kNumTokens), counts), kFalseAlarmRate);
  // Uncoupled draws would agree far less often.
  EXPECT_GT(decoder.num_accepted(), decoder.num_tested() / 2);
}

INSTANTIATE_TEST_SUITE_P(AllParameters, ReproducibleDistributionTest,
                         ::testing::ValuesIn(AllParamSets()),
                         [](const auto& test) { return test.param.name; });

class ReproducibleOutputTest : public ::testing::TestWithParam<ParamSet> {};

TEST_P(ReproducibleOutputTest, IsTheSameForEveryDraftLengthAndDrafter) {
  constexpr int32_t kLongOutput = 24;
  SamplingParams params = GetParam().params;
  params.reproducible = true;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    params.seed = seed << 40 | seed;
    const SyntheticModel target(kVocabularySize, 11);
    SpeculativeDecoder plain(target, std::nullopt, MixedDraftLength);
    const std::vector<int32_t> expected = plain.Generate(params, kLongOutput);
    for (const Pair& pair : AllPairs()) {
      for (int32_t k = 0; k <= 8; ++k) {
        SpeculativeDecoder decoder(target, pair.drafter, [k](uint64_t, int32_t) { return k; });
        EXPECT_EQ(decoder.Generate(params, kLongOutput), expected)
            << pair.name << ", draft length " << k;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllParameters, ReproducibleOutputTest, ::testing::ValuesIn(AllParamSets()),
                         [](const auto& test) { return test.param.name; });

class GreedyOutputTest : public ::testing::TestWithParam<ParamSet> {};

TEST_P(GreedyOutputTest, EqualsTheTargetsForEveryDraftLengthAndDrafter) {
  constexpr int32_t kLongOutput = 24;
  SamplingParams params = GetParam().params;
  params.temperature = 0;
  for (uint64_t model = 0; model < 20; ++model) {
    const SyntheticModel target(kVocabularySize, 100 + model);
    SpeculativeDecoder plain(target, std::nullopt, MixedDraftLength);
    const std::vector<int32_t> expected = plain.Generate(params, kLongOutput);
    for (const SyntheticModel& draft :
         {target.Perturbed(5, 0.5f), SyntheticModel(kVocabularySize, 6), target}) {
      for (int32_t k = 0; k <= 8; ++k) {
        SpeculativeDecoder decoder(target, Drafter{draft}, [k](uint64_t, int32_t) { return k; });
        EXPECT_EQ(decoder.Generate(params, kLongOutput), expected)
            << "model " << model << ", draft length " << k;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllParameters, GreedyOutputTest, ::testing::ValuesIn(AllParamSets()),
                         [](const auto& test) { return test.param.name; });

// Returns the distribution of one position with lenience. min(q, p/l) is accepted, and the rest
// goes to the plain residual.
std::vector<double> LenientDistribution(const std::vector<double>& p, const std::vector<double>& q,
                                        double lenience) {
  std::vector<double> out(p.size());
  double accepted = 0;
  for (size_t x = 0; x < p.size(); ++x) accepted += out[x] = std::min(q[x], p[x] / lenience);
  const std::vector<double> residual = ResidualReference(p, q);
  double sum = 0;
  for (double r : residual) sum += r;
  for (size_t x = 0; x < p.size(); ++x) out[x] += (1 - accepted) * residual[x] / sum;
  return out;
}

TEST(LenienceTest, AcceptsMoreAndGivesNoTokenMoreThanItsBound) {
  const SyntheticModel target(kVocabularySize, 11);
  const SyntheticModel draft = target.Perturbed(13, 1.5f);
  std::vector<float> logits(kVocabularySize);
  TokenCounts counts;
  target.Logits(kPrompt, logits);
  const std::vector<double> p = SamplingProbsReference(logits, SamplingParams(), counts, 0);
  draft.Logits(kPrompt, logits);
  const std::vector<double> q = SamplingProbsReference(logits, SamplingParams(), counts, 0);

  double last_acceptance = 0;
  for (const float lenience : {1.0f, 0.7f, 0.4f, 0.1f}) {
    SamplingParams params;
    params.lenience = lenience;
    SpeculativeDecoder decoder(target, Drafter{draft}, MixedDraftLength);
    const std::vector<int64_t> observed = DrawSequences(decoder, params, /*num_tokens=*/1);
    const std::vector<double> expected = LenientDistribution(p, q, static_cast<double>(lenience));
    EXPECT_GT(GTestPValue(expected, observed), kFalseAlarmRate) << "lenience " << lenience;
    for (size_t x = 0; x < p.size(); ++x) {
      EXPECT_LE(expected[x], p[x] / static_cast<double>(lenience) * (1 + 1e-12));
    }
    const double acceptance =
        static_cast<double>(decoder.num_accepted()) / static_cast<double>(decoder.num_tested());
    EXPECT_GT(acceptance, last_acceptance);
    last_acceptance = acceptance;
    if (lenience < 1.0f) {
      EXPECT_LT(GTestPValue(p, observed), kFalseAlarmRate) << "the change must be detected";
    }
  }
}

TEST(AcceptanceTest, EqualsTheOverlapOfTheDistributions) {
  // Acceptance at one position is the sum of min(p, q) (Leviathan et al. 2023, Theorem 3.5).
  const SyntheticModel target(kVocabularySize, 11);
  const SyntheticModel draft(kVocabularySize, 12);
  std::vector<float> logits(kVocabularySize);
  TokenCounts counts;
  target.Logits(kPrompt, logits);
  const std::vector<double> p = SamplingProbsReference(logits, SamplingParams(), counts, 0);
  draft.Logits(kPrompt, logits);
  const std::vector<double> q = SamplingProbsReference(logits, SamplingParams(), counts, 0);
  double overlap = 0;
  for (size_t x = 0; x < p.size(); ++x) overlap += std::min(p[x], q[x]);

  SpeculativeDecoder decoder(target, Drafter{draft}, MixedDraftLength);
  DrawSequences(decoder, SamplingParams(), /*num_tokens=*/1);
  const auto tested = static_cast<double>(decoder.num_tested());
  const double six_sigma = 6 * std::sqrt(overlap * (1 - overlap) / tested);
  EXPECT_NEAR(static_cast<double>(decoder.num_accepted()) / tested, overlap, six_sigma);
}

}  // namespace
}  // namespace tandem::testing::exact_distribution_test
