// Every instruction set that this machine can run gives the reference's results, not only the
// fastest one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "hwy/highway.h"
#include "hwy/targets.h"
#include "kernels/sampling/accept_reject.h"
#include "kernels/sampling/draw.h"
#include "kernels/sampling/reference.h"
#include "kernels/sampling/transform/row_kernels.h"
#include "kernels/sampling/transform/transform.h"
#include "tests/kernels/sampling/param_sets.h"
#include "tests/kernels/sampling/random_rows.h"

namespace tandem::testing::instruction_set_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class InstructionSetTest : public ::testing::TestWithParam<int64_t> {
 protected:
  InstructionSetTest() { hwy::SetSupportedTargetsForTest(GetParam()); }
  ~InstructionSetTest() override { hwy::SetSupportedTargetsForTest(0); }

  std::mt19937_64 random_{1};
};

TEST_P(InstructionSetTest, TransformsAgreeWithTheReference) {
  for (const ParamSet& set : AllParamSets()) {
    for (const RowKind& kind : AllRowKinds()) {
      for (const size_t size : {7, 300, 1001}) {
        const std::vector<float> logits = kind.make(size, random_);
        std::vector<float> row(size);
        LogProbs(logits, set.params, row);
        const std::vector<double> probs =
            ProbsReference(std::vector<double>(logits.begin(), logits.end()), set.params);
        for (size_t x = 0; x < size; ++x) {
          const double p = std::exp(static_cast<double>(row[x]));
          ASSERT_NEAR(p, probs[x], 2e-5 * probs[x] + 1e-12)
              << set.name << ", " << kind.name << ", token " << x;
        }
      }
    }
  }
}

TEST_P(InstructionSetTest, DrawsAgreeWithTheReference) {
  for (const size_t size : {1, 7, 64, 257, 1001}) {
    for (int repeat = 0; repeat < 50; ++repeat) {
      std::vector<float> p = NormalRow(size, 3.0f, random_);
      std::vector<float> q = NormalRow(size, 3.0f, random_);
      SamplingParams params;
      if (repeat % 2 == 1) params.top_k = 5;
      LogProbs(p, params, p);
      LogProbs(q, params, q);
      std::vector<double> p_exact(size);
      std::vector<double> q_exact(size);
      std::transform(p.begin(), p.end(), p_exact.begin(),
                     [](float x) { return std::exp(static_cast<double>(x)); });
      std::transform(q.begin(), q.end(), q_exact.begin(),
                     [](float x) { return std::exp(static_cast<double>(x)); });
      const DrawKey key{.seed = random_()};
      const double u = Uniform(key, DrawPurpose::kBonus);
      EXPECT_EQ(DrawFromLogProbs(p, u), DrawReference(p_exact, u));
      EXPECT_EQ(DrawCoupled(p, key), DrawCoupledReference(p_exact, key));

      std::vector<double> residual(size);
      const double sum = row::ResidualWeights(p, q, residual.data());
      double expected_sum = 0;
      for (size_t x = 0; x < size; ++x) {
        const double expected = std::max(0.0, p_exact[x] - q_exact[x]);
        expected_sum += expected;
        EXPECT_NEAR(residual[x], expected, 1e-14);
      }
      EXPECT_NEAR(sum, expected_sum, 1e-12);
    }
  }
}

TEST_P(InstructionSetTest, SearchesFindEveryMatch) {
  for (const size_t size : {1, 5, 16, 31, 100}) {
    for (size_t i = 0; i < size; ++i) {
      std::vector<float> row = NormalRow(size, 1.0f, random_);
      EXPECT_TRUE(AllFinite(row));
      row[i] = 9.0f;
      EXPECT_EQ(Argmax(row), static_cast<int32_t>(i));
      EXPECT_TRUE(row::AllAtMost(row, 9.0f));
      EXPECT_FALSE(row::AllAtMost(row, 8.9f));
      row[i] = std::numeric_limits<float>::quiet_NaN();
      EXPECT_FALSE(row::AllAtMost(row, 9.0f));
      EXPECT_FALSE(AllFinite(row));
      row[i] = -kInfinity;
      EXPECT_FALSE(AllFinite(row));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, InstructionSetTest,
                         ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& test) { return std::string(hwy::TargetName(test.param)); });

}  // namespace
}  // namespace tandem::testing::instruction_set_test
