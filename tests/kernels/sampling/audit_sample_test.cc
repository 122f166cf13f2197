#include "kernels/sampling/audit_sample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "kernels/sampling/draw.h"
#include "kernels/sampling/reference.h"
#include "kernels/sampling/transform/transform.h"
#include "tests/kernels/sampling/random_rows.h"

namespace tandem::testing::audit_sample_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> LogOf(const std::vector<double>& probs) {
  std::vector<float> row;
  for (double p : probs) row.push_back(static_cast<float>(std::log(p)));
  return row;
}

TEST(SampleForAuditTest, PutsTheTokenBetweenItsCumulativeSums) {
  const std::vector<float> p = LogOf({0.125, 0.5, 0, 0.375});
  for (uint64_t position = 0; position < 100; ++position) {
    const DrawKey key{.seed = 7, .position = position};
    const double v = Uniform(key, DrawPurpose::kAudit);
    EXPECT_NEAR(SampleForAudit(p, {}, {}, 0, key).uniform, 0.125 * v, 1e-7);
    EXPECT_NEAR(SampleForAudit(p, {}, {}, 1, key).uniform, 0.125 + 0.5 * v, 1e-7);
    EXPECT_NEAR(SampleForAudit(p, {}, {}, 3, key).uniform, 0.625 + 0.375 * v, 1e-7);
    EXPECT_EQ(SampleForAudit(p, {}, {}, 2, key).uniform, 1) << "p = 0";
    EXPECT_EQ(SampleForAudit(p, {}, {}, 1, key).draft_mode_excess, 0);
  }
}

TEST(SampleForAuditTest, ComparesTheTokenWithTheDraftersFavorite) {
  using Ids = std::vector<int32_t>;
  const std::vector<float> p = LogOf({0.125, 0.5, 0, 0.375});
  const std::vector<float> q =
      LogOf({0.25, 0.375, 0, 0.375});  // the mode is the lower id of two equal ones
  const DrawKey key{.seed = 7, .position = 1};
  EXPECT_NEAR(SampleForAudit(p, q, Ids{0}, 1, key).draft_mode_excess, 0.5, 1e-7);
  EXPECT_NEAR(SampleForAudit(p, q, Ids{3}, 3, key).draft_mode_excess, -0.5, 1e-7);
  // Without a row, the drafted token counts as the drafter's favorite.
  EXPECT_NEAR(SampleForAudit(p, {}, Ids{0}, 0, key).draft_mode_excess, 0.875, 1e-7);
  EXPECT_NEAR(SampleForAudit(p, {}, Ids{0}, 1, key).draft_mode_excess, -0.125, 1e-7);
  EXPECT_EQ(SampleForAudit(p, {}, Ids{2}, 1, key).draft_mode_excess, 0);
}

TEST(SampleForAuditTest, ComparesTheTokenWithTheSetOfFoundTokens) {
  const std::vector<float> p = LogOf({0.125, 0.5, 0, 0.375});
  const DrawKey key{.seed = 7, .position = 1};
  const std::vector<int32_t> found = {0, 3, 0};  // a token that was found twice counts once
  EXPECT_NEAR(SampleForAudit(p, {}, found, 0, key).draft_mode_excess, 0.5, 1e-7);
  EXPECT_NEAR(SampleForAudit(p, {}, found, 3, key).draft_mode_excess, 0.5, 1e-7);
  EXPECT_NEAR(SampleForAudit(p, {}, found, 1, key).draft_mode_excess, -0.5, 1e-7);
  // The first sibling's distribution has one favorite, whatever its siblings are.
  const std::vector<float> q = LogOf({0.25, 0.375, 0, 0.375});
  EXPECT_NEAR(SampleForAudit(p, q, found, 1, key).draft_mode_excess, 0.5, 1e-7);
}

TEST(SampleForAuditTest, AgreesWithTheReferenceOnRowsOfEveryKind) {
  std::mt19937_64 random(1);
  for (const RowKind& kind : AllRowKinds()) {
    for (const size_t size : {1, 7, 8, 9, 255, 1000, 128'256}) {
      SamplingParams params;
      params.top_p = random() % 2 == 0 ? 1.0f : 0.9f;
      std::vector<float> p = kind.make(size, random);
      std::vector<float> q = kind.make(size, random);
      LogProbs(p, params, p);
      LogProbs(q, params, q);
      std::vector<double> p_exact;
      std::vector<double> q_exact;
      for (float x : p) p_exact.push_back(std::exp(static_cast<double>(x)));
      for (float x : q) q_exact.push_back(std::exp(static_cast<double>(x)));
      for (uint64_t position = 0; position < 20; ++position) {
        const DrawKey key{.seed = 3, .position = position};
        const int32_t drafted = DrawFromLogProbs(q, Uniform(key, DrawPurpose::kPropose));
        const int32_t token_id = DrawFromLogProbs(p, Uniform(key, DrawPurpose::kBonus));
        const AuditSample sample = SampleForAudit(p, q, {&drafted, 1}, token_id, key);
        const AuditSample expected =
            SampleForAuditReference(p_exact, q_exact, {&drafted, 1}, token_id, key);
        EXPECT_NEAR(sample.uniform, expected.uniform, 2e-6) << kind.name << ", V " << size;
        EXPECT_NEAR(sample.draft_mode_excess, expected.draft_mode_excess, 1e-9) << kind.name;
        EXPECT_LT(sample.uniform, 1);
      }
    }
  }
}

TEST(SampleForAuditTest, StaysBelowOneEvenIfTheSumsRoundUp) {
  // The float probabilities of this row sum to a little more than 1.
  std::vector<float> p(3, static_cast<float>(std::log(1.0 / 3)) + 1e-6f);
  p.push_back(-kInfinity);
  for (uint64_t position = 0; position < 10'000; ++position) {
    const double u = SampleForAudit(p, {}, {}, 2, {.seed = 1, .position = position}).uniform;
    EXPECT_GE(u, 0.66);
    EXPECT_LT(u, 1);
  }
}

}  // namespace
}  // namespace tandem::testing::audit_sample_test
