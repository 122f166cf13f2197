#include "kernels/sampling/draw.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "kernels/sampling/accept_reject.h"
#include "kernels/sampling/random/coupled_noise.h"
#include "kernels/sampling/reference.h"
#include "kernels/sampling/transform/transform.h"
#include "tests/kernels/sampling/param_sets.h"
#include "tests/kernels/sampling/random_rows.h"

namespace tandem::testing::draw_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kLargestUniform = 1.0 - 0x1p-53;

std::vector<double> ProbsOf(const std::vector<float>& log_probs) {
  std::vector<double> probs;
  for (float x : log_probs) probs.push_back(std::exp(static_cast<double>(x)));
  return probs;
}

// Returns log-probabilities in which about the share `masked` of the tokens is cut.
std::vector<float> RandomLogProbs(size_t size, double masked, std::mt19937_64& random) {
  std::vector<float> row = NormalRow(size, 3.0f, random);
  std::bernoulli_distribution is_masked(masked);
  for (size_t x = 1; x < size; ++x) {
    if (is_masked(random)) row[x] = -kInfinity;
  }
  std::rotate(row.begin(), row.begin() + static_cast<ptrdiff_t>(random() % size), row.end());
  LogProbs(row, SamplingParams(), row);
  return row;
}

TEST(DrawFromLogProbsTest, AgreesWithTheReference) {
  std::mt19937_64 random(1);
  for (const size_t size : {1, 2, 7, 8, 9, 255, 256, 257, 1000, 4096}) {
    for (const double masked : {0.0, 0.5, 0.99}) {
      const std::vector<float> row = RandomLogProbs(size, masked, random);
      const std::vector<double> probs = ProbsOf(row);
      for (uint64_t i = 0; i < 100; ++i) {
        const double u = Uniform({.seed = 3, .position = i}, DrawPurpose::kBonus);
        EXPECT_EQ(DrawFromLogProbs(row, u), DrawReference(probs, u)) << "V " << size << ", u " << u;
      }
    }
  }
}

TEST(DrawFromLogProbsTest, NeverTakesACutTokenAtTheEndsOfTheRange) {
  std::mt19937_64 random(2);
  for (const size_t size : {1, 3, 8, 255, 256, 257, 600, 5000}) {
    for (int repeat = 0; repeat < 20; ++repeat) {
      const std::vector<float> row = RandomLogProbs(size, 0.9, random);
      const auto possible = [](float x) { return x > -kInfinity; };
      const auto first = std::find_if(row.begin(), row.end(), possible) - row.begin();
      const auto last = row.rend() - std::find_if(row.rbegin(), row.rend(), possible) - 1;
      EXPECT_EQ(DrawFromLogProbs(row, 0.0), first);
      EXPECT_EQ(DrawFromLogProbs(row, kLargestUniform), last);
    }
  }
}

TEST(CoupledUniformTest, TakesTwoTokensFromEachBlock) {
  const DrawKey key{
      .seed = 0x299f31d0a4093822, .position = 0x0370734413198a2e, .drafter = 3, .sibling = 5};
  const std::array<uint32_t, 4> words =
      Philox4x32({21, 4, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0});
  EXPECT_EQ(CoupledUniform(key, 42),
            std::ldexp(static_cast<double>((uint64_t{words[0]} << 32 | words[1]) >> 11), -53));
  EXPECT_EQ(CoupledUniform(key, 43),
            std::ldexp(static_cast<double>((uint64_t{words[2]} << 32 | words[3]) >> 11), -53));
}

TEST(DrawCoupledTest, AgreesWithTheReferenceExactly) {
  // Pruning must not change a single draw. The reference scores every token.
  std::mt19937_64 random(3);
  uint64_t position = 0;
  for (const size_t size : {1, 2, 3, 7, 8, 9, 15, 16, 17, 63, 1000, 4097}) {
    for (const double masked : {0.0, 0.5, 0.99}) {
      for (int repeat = 0; repeat < 40; ++repeat) {
        std::vector<float> row = RandomLogProbs(size, masked, random);
        if (repeat % 4 == 1) std::sort(row.begin(), row.end());  // the best is found last
        const DrawKey key{.seed = 9, .position = position++};
        EXPECT_EQ(DrawCoupled(row, key), DrawCoupledReference(ProbsOf(row), key)) << "V " << size;
      }
    }
  }
  for (int repeat = 0; repeat < 3; ++repeat) {
    const std::vector<float> row = RandomLogProbs(128'256, 0.0, random);
    const DrawKey key{.seed = 9, .position = position++};
    EXPECT_EQ(DrawCoupled(row, key), DrawCoupledReference(ProbsOf(row), key));
  }
}

TEST(DrawCoupledTest, DoesNotDependOnTheProposer) {
  std::mt19937_64 random(4);
  const std::vector<float> row = RandomLogProbs(1000, 0.0, random);
  for (uint64_t position = 0; position < 50; ++position) {
    const int32_t own = DrawCoupled(row, {.seed = 1, .position = position});
    EXPECT_EQ(DrawCoupled(row, {.seed = 1, .position = position, .drafter = 7, .sibling = 2}), own);
  }
}

TEST(DrawCoupledTest, AgreesBetweenDistributionsAsOftenAsPromised) {
  // At least (1 - d) / (1 + d) for total variation d (Daliri, Musco, Suresh 2024).
  std::mt19937_64 random(5);
  const std::vector<float> p = RandomLogProbs(50, 0.0, random);
  std::vector<float> q = NormalRow(50, 0.5f, random);
  std::transform(p.begin(), p.end(), q.begin(), q.begin(), std::plus<>());
  LogProbs(q, SamplingParams(), q);
  double distance = 0;
  for (size_t x = 0; x < p.size(); ++x) distance += std::abs(ProbsOf(p)[x] - ProbsOf(q)[x]) / 2;
  constexpr int kDraws = 20'000;
  int equal = 0;
  for (uint64_t position = 0; position < kDraws; ++position) {
    const DrawKey key{.seed = 2, .position = position};
    equal += DrawCoupled(p, key) == DrawCoupled(q, key) ? 1 : 0;
  }
  EXPECT_GT(distance, 0.05);
  EXPECT_GT(static_cast<double>(equal) / kDraws, (1 - distance) / (1 + distance) - 0.02);
}

class DrawDraftTokenTest : public ::testing::Test {
 protected:
  DrawDraftTokenTest() {
    std::mt19937_64 random(6);
    logits_ = NormalRow(100, 2.0f, random);
    counts_.Add(3, /*is_output=*/true);
    counts_.Add(17, /*is_output=*/false);
  }

  DraftDraw Draw(const SamplingParams& params, std::span<float> log_probs) {
    return DrawDraftToken(logits_, params, counts_, /*num_output_tokens=*/1, key_, log_probs,
                          scratch_);
  }

  std::vector<float> logits_;
  TokenCounts counts_;
  DrawKey key_{.seed = 5, .position = 77, .drafter = 2};
  std::vector<float> scratch_ = std::vector<float>(100);
  std::vector<float> log_probs_ = std::vector<float>(100, 1.0f);
};

TEST_F(DrawDraftTokenTest, LeavesTheRowFromWhichTheTokenWasDrawn) {
  for (const ParamSet& set : AllParamSets()) {
    const DraftDraw draw = Draw(set.params, log_probs_);
    EXPECT_TRUE(draw.finite);
    const std::vector<double> q = SamplingProbsReference(logits_, set.params, counts_, 1);
    for (size_t x = 0; x < q.size(); ++x)
      EXPECT_NEAR(std::exp(log_probs_[x]), q[x], 1e-6) << set.name;
    EXPECT_EQ(draw.token_id, DrawReference(q, Uniform(key_, DrawPurpose::kPropose))) << set.name;
    EXPECT_EQ(Draw(set.params, {}).token_id, draw.token_id) << "without a row, " << set.name;
  }
}

TEST_F(DrawDraftTokenTest, GreedyTakesTheArgmaxOfTheAdjustedLogits) {
  SamplingParams params;
  params.temperature = 0;
  EXPECT_EQ(Draw(params, {}).token_id, Argmax(logits_));
  params.logit_bias = {{61, 100.0f}};
  EXPECT_EQ(Draw(params, {}).token_id, 61);
  Draw(params, log_probs_);
  for (size_t x = 0; x < log_probs_.size(); ++x)
    EXPECT_EQ(log_probs_[x], x == 61 ? 0.0f : -kInfinity);
}

TEST_F(DrawDraftTokenTest, ReproducibleTakesTheCoupledDraw) {
  SamplingParams params;
  params.reproducible = true;
  std::vector<float> row(logits_.size());
  LogProbs(logits_, params, row);
  EXPECT_EQ(Draw(params, {}).token_id, DrawCoupled(row, key_));
}

TEST_F(DrawDraftTokenTest, SiblingsAreDrawnFromWhatIsLeft) {
  for (const ParamSet& set : AllParamSets()) {
    DraftDraw draw = Draw(set.params, log_probs_);
    std::vector<double> left = SamplingProbsReference(logits_, set.params, counts_, 1);
    const auto num_possible =
        std::count_if(left.begin(), left.end(), [](double p) { return p > 0; });
    std::set<int32_t> drawn = {draw.token_id};
    std::vector<std::vector<float>> rows(3, std::vector<float>(logits_.size()));
    for (size_t i = 0; i < rows.size() && static_cast<int64_t>(i) + 1 < num_possible; ++i) {
      left[static_cast<size_t>(draw.token_id)] = 0;
      const double sum = std::accumulate(left.begin(), left.end(), 0.0);
      DrawKey key = key_;
      key.sibling = static_cast<uint8_t>(i + 1);
      draw = DrawSibling(draw, set.params, key, rows[i]);
      for (size_t x = 0; x < left.size(); ++x) {
        EXPECT_NEAR(std::exp(rows[i][x]), left[x] / sum, 1e-5) << set.name << ", token " << x;
      }
      EXPECT_TRUE(IsDraftRowValid(rows[i], draw.token_id)) << set.name;
      EXPECT_EQ(draw.token_id, DrawFromLogProbs(rows[i], Uniform(key, DrawPurpose::kPropose)));
      EXPECT_TRUE(drawn.insert(draw.token_id).second) << set.name;
    }
  }
}

TEST_F(DrawDraftTokenTest, SiblingsOfAGreedyTokenAreTheNextLikeliest) {
  SamplingParams params;
  params.temperature = 0;
  params.logit_bias = {{61, 100.0f}, {12, 90.0f}, {77, 80.0f}};
  DraftDraw draw = Draw(params, {});
  EXPECT_EQ(draw.token_id, 61);
  draw = DrawSibling(draw, params, key_, scratch_);
  EXPECT_EQ(draw.token_id, 12);
  EXPECT_EQ(DrawSibling(draw, params, key_, scratch_).token_id, 77);
}

TEST_F(DrawDraftTokenTest, SiblingsOfAReproducibleTokenShareItsNoise) {
  SamplingParams params;
  params.reproducible = true;
  DraftDraw draw = Draw(params, {});
  std::vector<float> row(draw.drawn_from.begin(), draw.drawn_from.end());
  row[static_cast<size_t>(draw.token_id)] = -kInfinity;
  DrawKey key = key_;
  key.sibling = 1;
  draw = DrawSibling(draw, params, key, scratch_);
  EXPECT_EQ(draw.token_id, DrawCoupled(row, key_)) << "the second largest log q + noise";
}

TEST_F(DrawDraftTokenTest, SiblingsAreDrawnFromWhatIsHardlyPossible) {
  const SamplingParams params;
  std::vector<float> row(100);
  for (float gap = 60; gap < 2e5f; gap *= 1.03f) {
    // The token takes all, and two others share the rest.
    std::fill(row.begin(), row.end(), -kInfinity);
    row[3] = 0;
    row[40] = -gap;
    row[77] = -gap - 1;  // as far as a float has it
    const DraftDraw first{.token_id = 3, .drawn_from = row};
    const DraftDraw draw = DrawSibling(first, params, key_, scratch_);
    EXPECT_TRUE(draw.token_id == 40 || draw.token_id == 77) << gap;
    EXPECT_TRUE(IsDraftRowValid(scratch_, draw.token_id)) << gap;
    const double less = std::exp(double{row[77]} - double{row[40]});
    EXPECT_NEAR(std::exp(scratch_[40]), 1 / (1 + less), 1e-5) << gap;
  }
}

TEST_F(DrawDraftTokenTest, WhereNoOtherTokenIsPossibleTheSameOneIsDrawnAgain) {
  SamplingParams params;
  params.top_k = 1;
  for (const bool reproducible : {false, true}) {
    params.reproducible = reproducible;
    const DraftDraw first = Draw(params, log_probs_);
    const DraftDraw second = DrawSibling(first, params, key_, scratch_);
    EXPECT_EQ(second.token_id, first.token_id);
    EXPECT_TRUE(IsDraftRowValid(second.drawn_from, second.token_id));
  }
}

TEST_F(DrawDraftTokenTest, RefusesLogitsThatAreNotFinite) {
  for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    const float saved = logits_[50];
    logits_[50] = bad;
    for (const float temperature : {0.0f, 1.0f}) {
      SamplingParams params;
      params.temperature = temperature;
      EXPECT_FALSE(Draw(params, {}).finite);
    }
    logits_[50] = saved;
  }
}

}  // namespace
}  // namespace tandem::testing::draw_test
