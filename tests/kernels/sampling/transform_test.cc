#include "kernels/sampling/transform/transform.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/sampling/reference.h"
#include "kernels/sampling/transform/cuts.h"
#include "kernels/sampling/transform/row_kernels.h"
#include "tests/kernels/sampling/param_sets.h"
#include "tests/kernels/sampling/random_rows.h"

namespace tandem::testing::transform_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Returns the parameter sets of the statistical tests and harsher sets.
std::vector<ParamSet> HarshParamSets() {
  std::vector<ParamSet> sets = AllParamSets();
  const auto add = [&](std::string name) -> SamplingParams& {
    sets.push_back({std::move(name), {}});
    return sets.back().params;
  };
  add("ColdTemperature").temperature = 1e-3f;
  add("HotTemperature").temperature = 100.0f;
  add("DenormalTemperature").temperature = 1e-40f;
  add("TopKOne").top_k = 1;
  add("TopKMany").top_k = 500;
  add("TinyTopP").top_p = 1e-6f;
  add("TopPNearOne").top_p = 0.999999f;
  add("MinPOne").min_p = 1.0f;
  add("TinyMinP").min_p = 1e-6f;
  SamplingParams& encourages = add("PenaltiesThatEncourage");
  encourages.repetition_penalty = 0.5f;
  encourages.presence_penalty = -1.0f;
  encourages.frequency_penalty = -0.5f;
  SamplingParams& hot = add("HotTopPTopK");
  hot.temperature = 3.0f;
  hot.top_p = 0.5f;
  hot.top_k = 40;
  return sets;
}

class TransformTest : public ::testing::TestWithParam<std::tuple<ParamSet, RowKind>> {};

TEST_P(TransformTest, AgreesWithTheReference) {
  const auto& [set, kind] = GetParam();
  std::mt19937_64 random(2);
  for (const size_t size : {7, 8, 9, 15, 31, 64, 257, 1000, 4099}) {
    const std::vector<float> logits = kind.make(size, random);
    TokenCounts counts;
    for (int i = 0; i < 6; ++i)
      counts.Add(static_cast<int32_t>(random() % size), /*is_output=*/i % 2 == 0);
    for (const int32_t num_output_tokens : {0, 2}) {
      const std::vector<double> wanted =
          AdjustLogitsReference(logits, set.params, counts, num_output_tokens);
      std::vector<float> row(size);
      AdjustLogits(logits, set.params, counts, num_output_tokens, row);
      ASSERT_TRUE(std::equal(row.begin(), row.end(), wanted.begin()));
      if (!AdjustsLogits(set.params, num_output_tokens)) {
        ASSERT_EQ(row, logits);
      }

      const std::vector<double> probs = ProbsReference(wanted, set.params);
      LogProbs(row, set.params, row);  // in place
      for (size_t x = 0; x < size; ++x) {
        if (probs[x] < 1e-300) {
          ASSERT_LT(std::exp(static_cast<double>(row[x])), 1e-290)
              << "V " << size << ", token " << x;
        } else {
          // The tolerance covers the rounding of log p, and of the logit before the division.
          const double tolerance = 2e-6 * (1 + std::abs(std::log(probs[x])));
          ASSERT_NEAR(row[x], std::log(probs[x]), tolerance) << "V " << size << ", token " << x;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, TransformTest,
                         ::testing::Combine(::testing::ValuesIn(HarshParamSets()),
                                            ::testing::ValuesIn(AllRowKinds())),
                         [](const auto& test) {
                           return std::get<0>(test.param).name + std::get<1>(test.param).name;
                         });

class HugeVocabularyTest : public ::testing::TestWithParam<ParamSet> {};

TEST_P(HugeVocabularyTest, AgreesWithTheReference) {
  constexpr size_t kSize = 151'936;
  std::mt19937_64 random(3);
  for (const float spread : {1.0f, 4.0f}) {
    const std::vector<float> logits = NormalRow(kSize, spread, random);
    std::vector<float> row(kSize);
    LogProbs(logits, GetParam().params, row);
    const std::vector<double> probs =
        ProbsReference(std::vector<double>(logits.begin(), logits.end()), GetParam().params);
    double sum = 0;
    size_t kept_differently = 0;
    for (size_t x = 0; x < kSize; ++x) {
      const double p = std::exp(static_cast<double>(row[x]));
      sum += p;
      kept_differently += (p < 1e-290) != (probs[x] < 1e-290) ? 1 : 0;
      ASSERT_NEAR(p, probs[x], 1e-4 * probs[x] + 1e-9);
    }
    EXPECT_NEAR(sum, 1.0, 1e-5);
    // Many tokens are nearly equal, so the float exponentials may move the cut of top-p by one
    // token.
    EXPECT_LE(kept_differently, 2u);
  }
}

INSTANTIATE_TEST_SUITE_P(All, HugeVocabularyTest, ::testing::ValuesIn(HarshParamSets()),
                         [](const auto& test) { return test.param.name; });

std::vector<float> LogProbsOf(std::vector<float> logits, const SamplingParams& params) {
  LogProbs(logits, params, logits);
  return logits;
}

TEST(LogProbsTest, OneTokenIsCertain) {
  for (const ParamSet& set : HarshParamSets()) {
    EXPECT_EQ(LogProbsOf({-17.5f}, set.params), std::vector<float>{0.0f}) << set.name;
  }
}

TEST(LogProbsTest, AMaskOfAllButOneLeavesThatOne) {
  for (const size_t size : {2, 5, 8, 33, 4096}) {
    for (const size_t survivor : {size_t{0}, size / 2, size - 1}) {
      for (const ParamSet& set : HarshParamSets()) {
        std::vector<float> logits(size, -kInfinity);
        logits[survivor] = -40.0f;
        std::vector<float> expected(size, -kInfinity);
        expected[survivor] = 0.0f;
        EXPECT_EQ(LogProbsOf(logits, set.params), expected) << set.name;
      }
    }
  }
}

TEST(LogProbsTest, TopKKeepsTheLowerIdsOfATie) {
  SamplingParams params;
  params.top_k = 3;
  const std::vector<float> row = LogProbsOf({1, 2, 1, 1, 1}, params);
  EXPECT_GT(row[0], -kInfinity);
  EXPECT_GT(row[1], -kInfinity);
  EXPECT_GT(row[2], -kInfinity);
  EXPECT_EQ(row[3], -kInfinity);
  EXPECT_EQ(row[4], -kInfinity);
}

TEST(LogProbsTest, TopPKeepsTheSmallestSetThatReachesIt) {
  SamplingParams params;
  const std::vector<float> flat(8, 0.5f);
  for (const auto& [top_p, kept] : std::vector<std::pair<float, int>>{
           {0.5f, 4}, {0.51f, 5}, {1e-9f, 1}, {0.875f, 7}, {0.876f, 8}}) {
    params.top_p = top_p;
    const std::vector<float> row = LogProbsOf(flat, params);
    for (int x = 0; x < 8; ++x)
      EXPECT_EQ(row[x] > -kInfinity, x < kept) << "top_p " << top_p << ", token " << x;
  }
}

TEST(LogProbsTest, TopPCountsTheTokensThatTopKLeft) {
  // p = 0.4, 0.3, 0.2, 0.1. The first two alone have 4/7 and 3/7.
  SamplingParams params;
  params.top_k = 2;
  params.top_p = 0.55f;  // it would keep two of four tokens
  const std::vector<float> row =
      LogProbsOf({std::log(0.4f), std::log(0.3f), std::log(0.2f), std::log(0.1f)}, params);
  EXPECT_EQ(row[0], 0.0f);
  EXPECT_EQ(row[1], -kInfinity);
}

TEST(LogProbsTest, DependsOnlyOnTheRow) {
  // The row lies at another address, and the buffer held other values before.
  std::mt19937_64 random(4);
  const std::vector<float> logits = NormalRow(1001, 2.0f, random);
  for (const ParamSet& set : HarshParamSets()) {
    const std::vector<float> expected = LogProbsOf(logits, set.params);
    LogProbsOf(NormalRow(5000, 1.0f, random), set.params);
    for (size_t offset = 1; offset < 17; offset += 3) {
      std::vector<float> shifted(logits.size() + offset);
      const auto row = std::span(shifted).subspan(offset);
      std::copy(logits.begin(), logits.end(), row.begin());
      LogProbs(row, set.params, row);
      EXPECT_TRUE(std::equal(row.begin(), row.end(), expected.begin()))
          << set.name << ", offset " << offset;
    }
  }
}

TEST(AdjustLogitsTest, AppliesPenaltiesThenBiasThenMask) {
  SamplingParams params;
  params.repetition_penalty = 2.0f;
  params.presence_penalty = 0.5f;
  params.frequency_penalty = 0.25f;
  params.logit_bias = {{2, 10.0f}, {3, 1.0f}};
  params.min_tokens = 4;
  params.held_back_token_ids = {3};
  TokenCounts counts;
  counts.Add(0, /*is_output=*/false);
  counts.Add(1, /*is_output=*/true);
  counts.Add(1, /*is_output=*/true);
  counts.Add(2, /*is_output=*/true);
  std::vector<float> row = {4, 4, -4, 4, 4};
  AdjustLogits(row, params, counts, /*num_output_tokens=*/3, row);
  EXPECT_EQ(row, (std::vector<float>{2, 2 - 0.5f - 0.5f, -8 - 0.5f - 0.25f + 10, -kInfinity, 4}));
}

TEST(AdjustLogitsTest, HoldsBackUntilMinTokensAreOut) {
  SamplingParams params;
  params.min_tokens = 2;
  params.held_back_token_ids = {1};
  for (const int32_t num_output_tokens : {0, 1, 2, 3}) {
    std::vector<float> row = {0, 0};
    AdjustLogits(row, params, TokenCounts(), num_output_tokens, row);
    EXPECT_EQ(row[1] == -kInfinity, num_output_tokens < 2);
  }
}

TEST(AdjustLogitsTest, AMaskOfEverythingIsNotApplied) {
  SamplingParams params;
  params.min_tokens = 2;
  params.held_back_token_ids = {1, 0, 1};
  std::vector<float> row = {3, 4};
  AdjustLogits(row, params, TokenCounts(), 0, row);
  EXPECT_EQ(row, (std::vector<float>{3, 4}));
}

TEST(AdjustLogitsTest, NeverMakesAFiniteLogitInfinite) {
  SamplingParams params;
  params.repetition_penalty = 1e30f;
  TokenCounts counts;
  counts.Add(0, /*is_output=*/false);
  std::vector<float> row = {-1e30f, 0};
  AdjustLogits(row, params, counts, 0, row);
  EXPECT_EQ(row[0], std::numeric_limits<float>::lowest());
}

TEST(AllFiniteTest, FindsNanAndInfinityAtEveryPlace) {
  for (const size_t size : {1, 7, 8, 9, 16, 33, 100}) {
    std::vector<float> row(size, std::numeric_limits<float>::lowest());
    EXPECT_TRUE(AllFinite(row));
    for (size_t i = 0; i < size; ++i) {
      for (const float bad : {kNan, -kNan, kInfinity, -kInfinity}) {
        std::vector<float> broken = row;
        broken[i] = bad;
        EXPECT_FALSE(AllFinite(broken)) << "V " << size << ", token " << i;
      }
    }
  }
}

TEST(ArgmaxTest, TakesTheLowestIdAmongEquals) {
  EXPECT_EQ(Argmax(std::vector<float>{-2}), 0);
  EXPECT_EQ(Argmax(std::vector<float>{-2, 5, 5, 5}), 1);
  EXPECT_EQ(Argmax(std::vector<float>{-0.0f, 0.0f}), 0);
  EXPECT_EQ(Argmax(std::vector<float>{-kInfinity, -kInfinity}), 0);
  std::mt19937_64 random(6);
  for (const size_t size : {1, 5, 8, 63, 64, 65, 1000}) {
    for (size_t i = 0; i < size; i += 1 + size / 40) {
      std::vector<float> row = NormalRow(size, 1.0f, random);
      row[i] = 50.0f;
      row[size - 1] = 50.0f;
      EXPECT_EQ(Argmax(row), static_cast<int32_t>(i));
    }
  }
}

TEST(SortKeyTest, OrdersByValueDownAndIdUp) {
  const std::vector<float> descending = {kInfinity, 3e38f, 2.0f,   1e-40f,    0.0f,
                                         -1e-40f,   -2.0f, -3e38f, -kInfinity};
  for (size_t i = 0; i < descending.size(); ++i) {
    const uint64_t key = row::SortKey(descending[i], 9);
    EXPECT_EQ(row::ValueOf(key), descending[i]);
    EXPECT_EQ(row::IdOf(key), 9);
    EXPECT_LT(key, row::SortKey(descending[i], 10));
    if (i > 0) {
      EXPECT_LT(row::SortKey(descending[i - 1], 100), row::SortKey(descending[i], 0));
    }
  }
  EXPECT_EQ(row::SortKey(-0.0f, 1), row::SortKey(0.0f, 1));
}

TEST(LargestEntriesTest, EqualThoseOfAFullSort) {
  std::mt19937_64 random(8);
  for (const RowKind& kind : AllRowKinds()) {
    for (const size_t size : {1, 50, 1000, 20'000}) {
      std::vector<float> values = kind.make(size, random);
      values[size / 3] = -kInfinity;
      std::vector<uint64_t> sorted;
      for (size_t i = 0; i < size; ++i) {
        if (values[i] > -kInfinity)
          sorted.push_back(row::SortKey(values[i], static_cast<uint32_t>(i)));
      }
      std::sort(sorted.begin(), sorted.end());
      for (const size_t k : {1, 5, 50, 999, 15'000}) {
        const std::span<uint64_t> entries = LargestEntries(values, k);
        std::sort(entries.begin(), entries.end());
        const std::vector<uint64_t> expected(sorted.begin(),
                                             sorted.begin() + std::min(k, sorted.size()));
        EXPECT_TRUE(std::equal(entries.begin(), entries.end(), expected.begin(), expected.end()))
            << kind.name << ", V " << size << ", k " << k;
      }
    }
  }
}

}  // namespace
}  // namespace tandem::testing::transform_test
