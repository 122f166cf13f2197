// Tests the statistical test itself. Known mistakes of speculative samplers are planted in an
// accept step of this test. The G-test catches them with the number of draws that it takes for the
// real sampler, and the same loop without a mistake passes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <ostream>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/sampling/random/philox.h"
#include "kernels/sampling/reference.h"
#include "kernels/sampling/transform/token_counts.h"
#include "tests/kernels/sampling/distribution/goodness_of_fit.h"
#include "tests/kernels/sampling/distribution/synthetic_model.h"

namespace tandem::testing::planted_bias_test {
namespace {

constexpr int32_t kVocabularySize = 5;
constexpr int32_t kNumTokens = 3;
constexpr int32_t kDraftLength = 2;

enum class Bias {
  kNone,
  kNoneWithCoarseUniforms,  // control of kAcceptsAtEquality: 4-bit u, for which it is exact
  // Control of kSharedGumbelNoise: Gumbel-max draws with independent noise.
  kNoneWithGumbelNoise,
  kAcceptsAtEquality,             // p/q >= u lets a token with p = 0 through at u = 0
  kResidualIsAbsoluteDifference,  // |p - q|
  kResidualIsTarget,              // p
  kSharedUniform,                 // the residual's inverse CDF uses u of the acceptance again
  kSharedGumbelNoise,             // one Gumbel noise for proposal and residual
  kDraftProbsBeforeTopK,          // q is not the row from which the token was drawn
  kBonusFromWrongRow,             // the row before the last
  kDropsUnlikelyDrafts,           // a draft token is withdrawn because its own q is low
};

struct Case {
  Bias bias;
  std::string name;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

// Rows of both models for every context of up to kNumTokens tokens. A context is a number with a
// leading 1.
struct Tables {
  std::vector<std::vector<double>> p;
  std::vector<std::vector<double>> q;  // rows from which draft tokens are drawn
  std::vector<std::vector<double>> q_before_top_k;

  static size_t Next(size_t context, int32_t token_id) {
    return context * kVocabularySize + static_cast<size_t>(token_id);
  }
};

constexpr size_t kRoot = 1;

void FillTables(const SyntheticModel& target, const SyntheticModel& draft, size_t context,
                std::vector<int32_t>& token_ids, Tables& tables) {
  SamplingParams all;
  SamplingParams top_k;
  top_k.top_k = 3;
  const TokenCounts no_counts;
  std::vector<float> logits(kVocabularySize);
  target.Logits(token_ids, logits);
  tables.p[context] = SamplingProbsReference(logits, top_k, no_counts, 0);
  draft.Logits(token_ids, logits);
  tables.q[context] = SamplingProbsReference(logits, top_k, no_counts, 0);
  tables.q_before_top_k[context] = SamplingProbsReference(logits, all, no_counts, 0);
  if (token_ids.size() == kNumTokens) return;
  for (int32_t x = 0; x < kVocabularySize; ++x) {
    token_ids.push_back(x);
    FillTables(target, draft, Tables::Next(context, x), token_ids, tables);
    token_ids.pop_back();
  }
}

Tables EmptyTables() {
  const size_t size = 2 * static_cast<size_t>(std::pow(kVocabularySize, kNumTokens));
  Tables tables;
  tables.p.resize(size);
  tables.q.resize(size);
  tables.q_before_top_k.resize(size);
  return tables;
}

Tables RandomTables() {
  Tables tables = EmptyTables();
  std::vector<int32_t> token_ids;
  FillTables(SyntheticModel(kVocabularySize, 21), SyntheticModel(kVocabularySize, 22), kRoot,
             token_ids, tables);
  return tables;
}

// Half of the proposals have p = 0, and the other half has p = q. A strict comparison judges them
// correctly with any u of [0, 1).
Tables HalfImpossibleTables() {
  Tables tables = EmptyTables();
  for (auto& row : tables.p) row = {0, 0.5, 0.25, 0.25, 0};
  for (auto& row : tables.q) row = {0.5, 0.5, 0, 0, 0};
  tables.q_before_top_k = tables.q;
  return tables;
}

// Returns the probability of each output under p alone.
std::vector<double> Enumerate(const Tables& tables) {
  std::vector<double> out;
  for (int32_t a = 0; a < kVocabularySize; ++a) {
    for (int32_t b = 0; b < kVocabularySize; ++b) {
      for (int32_t c = 0; c < kVocabularySize; ++c) {
        const size_t after_a = Tables::Next(kRoot, a);
        out.push_back(tables.p[kRoot][a] * tables.p[after_a][b] *
                      tables.p[Tables::Next(after_a, b)][c]);
      }
    }
  }
  return out;
}

// Draws by Gumbel-max with noise -log(E): the argmin of E / weight.
int32_t DrawByGumbel(std::span<const double> weights, const DrawKey& key) {
  return DrawCoupledReference(weights, key);
}

// Speculative decoding of one request with one mistake.
class BiasedDecoder {
 public:
  BiasedDecoder(const Tables& tables, Bias bias, uint64_t seed)
      : tables_(tables), bias_(bias), seed_(seed) {}

  // Returns the cell of the first kNumTokens tokens.
  size_t Generate() {
    while (committed_ < kNumTokens) Round();
    return context_ - static_cast<size_t>(std::pow(kVocabularySize, kNumTokens));
  }

 private:
  struct DraftToken {
    int32_t token_id;
    size_t context;  // context before the token
  };

  DrawKey Key(int32_t position) const {
    return {.seed = seed_, .position = static_cast<uint64_t>(position)};
  }

  double AcceptUniform(int32_t position) const {
    const double u = Uniform(Key(position), DrawPurpose::kAccept);
    const bool coarse = bias_ == Bias::kAcceptsAtEquality || bias_ == Bias::kNoneWithCoarseUniforms;
    return coarse ? std::floor(u * 16) / 16 : u;
  }

  bool DrawsByGumbel() const {
    return bias_ == Bias::kSharedGumbelNoise || bias_ == Bias::kNoneWithGumbelNoise;
  }

  std::vector<DraftToken> Propose() const {
    std::vector<DraftToken> draft;
    size_t context = context_;
    for (int32_t i = 0; i < kDraftLength && committed_ + i < kNumTokens; ++i) {
      const std::vector<double>& q = tables_.q[context];
      const DrawKey key = Key(committed_ + i);
      const int32_t x = DrawsByGumbel() ? DrawByGumbel(q, key)
                                        : DrawReference(q, Uniform(key, DrawPurpose::kPropose));
      if (bias_ == Bias::kDropsUnlikelyDrafts && q[x] < 0.3) break;
      draft.push_back({x, context});
      context = Tables::Next(context, x);
    }
    return draft;
  }

  bool Accepts(double u, double p, double q) const {
    return bias_ == Bias::kAcceptsAtEquality ? p / q >= u : u * q < p;
  }

  int32_t Recover(const std::vector<double>& p, const std::vector<double>& q,
                  int32_t position) const {
    std::vector<double> residual = ResidualReference(p, q);
    if (bias_ == Bias::kResidualIsTarget) residual = p;
    if (bias_ == Bias::kResidualIsAbsoluteDifference) {
      for (size_t x = 0; x < p.size(); ++x) residual[x] = std::abs(p[x] - q[x]);
    }
    DrawKey key = Key(position);
    if (bias_ == Bias::kSharedGumbelNoise) return DrawByGumbel(residual, key);
    if (bias_ == Bias::kNoneWithGumbelNoise) {
      key.seed = ~seed_;
      return DrawByGumbel(residual, key);
    }
    if (bias_ == Bias::kSharedUniform) return DrawReference(residual, AcceptUniform(position));
    return DrawReference(residual, Uniform(key, DrawPurpose::kResample));
  }

  void Round() {
    const std::vector<DraftToken> draft = Propose();
    for (const DraftToken& token : draft) {
      const std::vector<double>& p = tables_.p[token.context];
      const std::vector<double>& q = bias_ == Bias::kDraftProbsBeforeTopK
                                         ? tables_.q_before_top_k[token.context]
                                         : tables_.q[token.context];
      if (!Accepts(AcceptUniform(committed_), p[token.token_id], q[token.token_id])) {
        Commit(Recover(p, q, committed_));
        return;
      }
      Commit(token.token_id);
    }
    if (committed_ == kNumTokens) return;
    const bool wrong_row = bias_ == Bias::kBonusFromWrongRow && !draft.empty();
    const std::vector<double>& p = tables_.p[wrong_row ? draft.back().context : context_];
    Commit(DrawReference(p, Uniform(Key(committed_), DrawPurpose::kBonus)));
  }

  void Commit(int32_t token_id) {
    context_ = Tables::Next(context_, token_id);
    ++committed_;
  }

  const Tables& tables_;
  const Bias bias_;
  const uint64_t seed_;
  size_t context_ = kRoot;
  int32_t committed_ = 0;
};

double PValueOf(const Tables& tables, Bias bias) {
  std::vector<int64_t> observed(static_cast<size_t>(std::pow(kVocabularySize, kNumTokens)));
  for (int64_t draw = 0; draw < kNumDraws; ++draw) {
    ++observed[BiasedDecoder(tables, bias, static_cast<uint64_t>(draw)).Generate()];
  }
  return GTestPValue(Enumerate(tables), observed);
}

const Tables& TablesOf(Bias bias) {
  static const Tables random = RandomTables();
  static const Tables half_impossible = HalfImpossibleTables();
  return bias == Bias::kAcceptsAtEquality || bias == Bias::kNoneWithCoarseUniforms ? half_impossible
                                                                                   : random;
}

std::string NameOf(const ::testing::TestParamInfo<Case>& test) { return test.param.name; }

class PlantedBiasTest : public ::testing::TestWithParam<Case> {};

TEST_P(PlantedBiasTest, IsCaught) {
  EXPECT_LT(PValueOf(TablesOf(GetParam().bias), GetParam().bias), kFalseAlarmRate);
}

INSTANTIATE_TEST_SUITE_P(
    All, PlantedBiasTest,
    ::testing::Values(Case{Bias::kAcceptsAtEquality, "AcceptsAtEquality"},
                      Case{Bias::kResidualIsAbsoluteDifference, "ResidualIsAbsoluteDifference"},
                      Case{Bias::kResidualIsTarget, "ResidualIsTarget"},
                      Case{Bias::kSharedUniform, "SharedUniform"},
                      Case{Bias::kSharedGumbelNoise, "SharedGumbelNoise"},
                      Case{Bias::kDraftProbsBeforeTopK, "DraftProbsBeforeTopK"},
                      Case{Bias::kBonusFromWrongRow, "BonusFromWrongRow"},
                      Case{Bias::kDropsUnlikelyDrafts, "DropsUnlikelyDrafts"}),
    NameOf);

class UnbiasedControlTest : public ::testing::TestWithParam<Case> {};

TEST_P(UnbiasedControlTest, Passes) {
  EXPECT_GT(PValueOf(TablesOf(GetParam().bias), GetParam().bias), kFalseAlarmRate);
}

INSTANTIATE_TEST_SUITE_P(All, UnbiasedControlTest,
                         ::testing::Values(Case{Bias::kNone, "InverseCdf"},
                                           Case{Bias::kNoneWithCoarseUniforms, "CoarseUniforms"},
                                           Case{Bias::kNoneWithGumbelNoise, "GumbelNoise"}),
                         NameOf);

TEST(GoodnessOfFitTest, AgreesWithTheChiSquareTable) {
  // Two cells have 1 degree of freedom. G = 2 (60 ln 1.2 + 40 ln 0.8) = 4.0271 has the tail
  // 0.04477.
  const std::vector<double> half = {0.5, 0.5};
  EXPECT_NEAR(GTestPValue(half, std::vector<int64_t>{60, 40}), 0.04477, 1e-4);
  EXPECT_NEAR(GTestPValue(half, std::vector<int64_t>{50, 50}), 1.0, 1e-12);
}

TEST(GoodnessOfFitTest, ReportsAnImpossibleOutcome) {
  EXPECT_EQ(GTestPValue(std::vector<double>{1.0, 0.0}, std::vector<int64_t>{1000000, 1}), 0.0);
}

TEST(GoodnessOfFitTest, PoolsCellsThatExpectLittle) {
  // Each of the sixty rare cells expects 0.01. The one observation in such a cell would add 2 ln
  // 100 if the cell was not pooled.
  std::vector<double> probabilities(61, 1e-5);
  probabilities[0] = 1 - 60e-5;
  std::vector<int64_t> observed(61, 0);
  observed[0] = 999;
  observed[7] = 1;
  EXPECT_GT(GTestPValue(probabilities, observed), 0.01);
}

TEST(GoodnessOfFitTest, RaisesFewFalseAlarms) {
  // The p-values of right samples are about uniform. Count how many of 2000 are under 5 %.
  const std::vector<double> probabilities = {0.4, 0.3, 0.2, 0.06, 0.04};
  std::mt19937_64 random(5);
  std::discrete_distribution<size_t> draw(probabilities.begin(), probabilities.end());
  int alarms = 0;
  for (int sample = 0; sample < 2000; ++sample) {
    std::vector<int64_t> observed(probabilities.size());
    for (int i = 0; i < 1000; ++i) ++observed[draw(random)];
    alarms += GTestPValue(probabilities, observed) < 0.05 ? 1 : 0;
  }
  EXPECT_NEAR(alarms, 100, 50);
}

}  // namespace
}  // namespace tandem::testing::planted_bias_test
