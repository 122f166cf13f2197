#include "kernels/sampling/accept_reject.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/sampling/draw.h"
#include "kernels/sampling/log_probs_report.h"
#include "kernels/sampling/reference.h"
#include "kernels/sampling/transform/transform.h"
#include "tests/kernels/sampling/param_sets.h"
#include "tests/kernels/sampling/random_rows.h"

namespace tandem::testing::accept_reject_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A block whose drafter sees the target's logits plus noise.
struct Block {
  std::vector<float> target_logits;  // [K+1, stride]
  std::vector<int32_t> draft_token_ids;
  std::vector<int32_t> parents;        // if it is a tree
  std::vector<float> draft_log_probs;  // [K, V]
  TokenCounts counts;
  SamplingParams params;
  AcceptRejectArgs args;

  Block(size_t vocabulary_size, int32_t draft_length, const SamplingParams& p, float noise,
        std::mt19937_64& random)
      : params(p) {
    const size_t stride = vocabulary_size + 3;
    target_logits = NormalRow((draft_length + 1) * stride, 2.0f, random);
    draft_log_probs.resize(draft_length * vocabulary_size);
    std::vector<float> scratch(vocabulary_size);
    for (int i = 0; i < 5; ++i)
      counts.Add(static_cast<int32_t>(random() % vocabulary_size), /*is_output=*/i % 2 == 0);
    TokenCounts drafted_counts = counts;
    for (int32_t i = 0; i < draft_length; ++i) {
      std::vector<float> logits = NormalRow(vocabulary_size, noise, random);
      for (size_t x = 0; x < vocabulary_size; ++x) logits[x] += target_logits[i * stride + x];
      const DrawKey key{
          .seed = params.seed, .position = static_cast<uint64_t>(40 + i), .drafter = 1};
      const std::span<float> row =
          std::span(draft_log_probs).subspan(i * vocabulary_size, vocabulary_size);
      draft_token_ids.push_back(
          DrawDraftToken(logits, params, drafted_counts, 3 + i, key, row, scratch).token_id);
      drafted_counts.Add(draft_token_ids.back(), /*is_output=*/true);
    }
    args.target_logits = target_logits.data();
    args.logits_stride = stride;
    args.vocabulary_size = vocabulary_size;
    args.draft_token_ids = draft_token_ids;
    args.draft_log_probs = draft_length > 0 && !params.greedy() && !params.reproducible
                               ? draft_log_probs.data()
                               : nullptr;
    args.params = &params;
    args.counts = &counts;
    args.num_output_tokens = 3;
    args.position = 40;
    args.drafter = 1;
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  // Makes the chain a random tree. Half of its tokens become the target's favorites, and half of
  // the drawn tokens may count as found ones.
  void MakeTree(std::mt19937_64& random) {
    parents.clear();
    for (size_t i = 0; i < draft_token_ids.size(); ++i) {
      parents.push_back(static_cast<int32_t>(random() % (i + 1)) - 1);
      const size_t row = static_cast<size_t>(parents.back() + 1) * args.logits_stride;
      const int32_t favorite = Argmax(std::span(target_logits).subspan(row, args.vocabulary_size));
      // A token that was drawn has a probability.
      const bool may_be_drawn =
          args.draft_log_probs == nullptr ||
          draft_log_probs[i * args.vocabulary_size + static_cast<size_t>(favorite)] > -10;
      if (may_be_drawn && random() % 2 == 0) draft_token_ids[i] = favorite;
    }
    args.draft_parents = parents;
    args.num_found = random() % (draft_token_ids.size() / 2 + 1);
  }
  // Returns the number of accepted tokens that have an earlier sibling.
  int32_t NumSiblings(const BlockVerdict& verdict) const {
    int32_t num = 0;
    for (const int32_t node : verdict.path) {
      num += std::find(parents.begin(), parents.begin() + node, parents[node]) !=
                     parents.begin() + node
                 ? 1
                 : 0;
    }
    return num;
  }

  float& Logit(size_t row, size_t token_id) {
    return target_logits[row * args.logits_stride + token_id];
  }
};

void ExpectEqual(const BlockVerdict& verdict, const BlockVerdict& expected) {
  EXPECT_EQ(verdict.finite, expected.finite);
  EXPECT_EQ(verdict.path, expected.path);
  EXPECT_EQ(verdict.next_token_id, expected.next_token_id);
  ASSERT_EQ(verdict.log_probs.size(), expected.log_probs.size());
  for (size_t i = 0; i < expected.log_probs.size(); ++i) {
    EXPECT_NEAR(verdict.log_probs[i].log_prob, expected.log_probs[i].log_prob, 1e-5);
    ASSERT_EQ(verdict.log_probs[i].top.size(), expected.log_probs[i].top.size());
    for (size_t n = 0; n < expected.log_probs[i].top.size(); ++n) {
      EXPECT_EQ(verdict.log_probs[i].top[n].token_id, expected.log_probs[i].top[n].token_id);
      EXPECT_NEAR(verdict.log_probs[i].top[n].log_prob, expected.log_probs[i].top[n].log_prob,
                  1e-5);
    }
  }
  ASSERT_EQ(verdict.audit.size(), expected.audit.size());
  for (size_t i = 0; i < expected.audit.size(); ++i) {
    EXPECT_NEAR(verdict.audit[i].uniform, expected.audit[i].uniform, 1e-5);
    EXPECT_NEAR(verdict.audit[i].draft_mode_excess, expected.audit[i].draft_mode_excess, 1e-5);
  }
}

enum class Mode {
  kGreedy,
  kLenientGreedy,
  kReproducible,
  kSampled,
  kOneHot,
  kLenient,
  kLenientOneHot
};

class AcceptRejectTest : public ::testing::TestWithParam<std::tuple<ParamSet, Mode>> {};

TEST_P(AcceptRejectTest, AgreesWithTheReference) {
  const auto& [set, mode] = GetParam();
  std::mt19937_64 random(1);
  int32_t num_accepted = 0;
  int32_t num_drafted = 0;
  int32_t num_siblings = 0;
  for (const size_t vocabulary_size : {7, 8, 33, 300, 4097}) {
    for (int32_t draft_length = 0; draft_length <= 6; ++draft_length) {
      for (const float noise : {0.0f, 0.5f, 4.0f}) {
        SamplingParams params = set.params;
        params.seed = random();
        params.num_logprobs = static_cast<int32_t>(random() % 7) - 1;
        params.audit = random() % 2 == 0;
        params.reproducible = mode == Mode::kReproducible;
        if (mode == Mode::kGreedy || mode == Mode::kLenientGreedy) params.temperature = 0;
        if (mode == Mode::kLenientGreedy || mode == Mode::kLenient ||
            mode == Mode::kLenientOneHot) {
          params.lenience = 0.4f;
        }
        Block block(vocabulary_size, draft_length, params, noise, random);
        if (mode == Mode::kOneHot || mode == Mode::kLenientOneHot) {
          block.args.draft_log_probs = nullptr;
        }
        const TokenCounts before = block.counts;
        const BlockVerdict verdict = AcceptReject(block.args);
        ExpectEqual(verdict, AcceptRejectReference(block.args));
        for (int tree = 0; tree < 2; ++tree) {
          block.MakeTree(random);
          const BlockVerdict of_tree = AcceptReject(block.args);
          ExpectEqual(of_tree, AcceptRejectReference(block.args));
          num_siblings += block.NumSiblings(of_tree);
        }
        num_accepted += verdict.num_accepted();
        num_drafted += draft_length;
        EXPECT_EQ(block.counts.counts().size(), before.counts().size());
        for (const auto& [id, count] : before.counts()) {
          EXPECT_EQ(block.counts.counts().at(id).output, count.output);
          EXPECT_EQ(block.counts.counts().at(id).prompt, count.prompt);
        }
      }
    }
  }
  EXPECT_GT(num_accepted, 0);
  EXPECT_LT(num_accepted, num_drafted);
  EXPECT_GT(num_siblings, 0);
}

std::string NameOf(Mode mode) {
  switch (mode) {
    case Mode::kGreedy:
      return "Greedy";
    case Mode::kLenientGreedy:
      return "LenientGreedy";
    case Mode::kReproducible:
      return "Reproducible";
    case Mode::kSampled:
      return "Sampled";
    case Mode::kOneHot:
      return "OneHot";
    case Mode::kLenient:
      return "Lenient";
    case Mode::kLenientOneHot:
      return "LenientOneHot";
  }
  return "";
}

INSTANTIATE_TEST_SUITE_P(All, AcceptRejectTest,
                         ::testing::Combine(::testing::ValuesIn(AllParamSets()),
                                            ::testing::Values(Mode::kGreedy, Mode::kLenientGreedy,
                                                              Mode::kReproducible, Mode::kSampled,
                                                              Mode::kOneHot, Mode::kLenient,
                                                              Mode::kLenientOneHot)),
                         [](const auto& test) {
                           return std::get<0>(test.param).name + NameOf(std::get<1>(test.param));
                         });

TEST(AcceptsDraftTest, IsStrict) {
  EXPECT_FALSE(AcceptsDraft(0.0, 1.0, 0.5, 0.0)) << "p = 0 is never accepted, even at u = 0";
  EXPECT_FALSE(AcceptsDraft(0.0, 1e-9, 0.5, 0.0));
  EXPECT_FALSE(AcceptsDraft(0.5, 1.0, 0.5, 0.25));
  EXPECT_TRUE(AcceptsDraft(0.0, 1.0, 0.5, 1e-300));
  EXPECT_TRUE(AcceptsDraft(1.0 - 0x1p-53, 1.0, 0.5, 0.5)) << "q = p is always accepted: u < 1";
  EXPECT_TRUE(AcceptsDraft(0.9, 0.5, 0.5, 0.25));
}

TEST(AcceptRejectTest, NeverLooksAtRowsAfterTheFirstRejection) {
  std::mt19937_64 random(2);
  for (int repeat = 0; repeat < 200; ++repeat) {
    SamplingParams params;
    params.seed = random();
    params.temperature = repeat % 3 == 0 ? 0.0f : 1.0f;
    params.reproducible = repeat % 3 == 1;
    Block block(20, 4, params, 1.5f, random);
    const BlockVerdict whole = AcceptReject(block.args);
    for (int32_t row = 0; row <= 4; ++row) {
      for (const float bad : {kNan, kInfinity, -kInfinity}) {
        const float saved = block.Logit(row, 13);
        block.Logit(row, 13) = bad;
        const BlockVerdict verdict = AcceptReject(block.args);
        if (row <= whole.num_accepted()) {
          EXPECT_FALSE(verdict.finite);
        } else {
          ExpectEqual(verdict, whole);
        }
        block.Logit(row, 13) = saved;
      }
    }
  }
}

TEST(AcceptRejectTest, RestoresTheCountsWhenAUsedRowIsNotFinite) {
  std::mt19937_64 random(3);
  SamplingParams params;
  params.presence_penalty = 0.1f;
  params.seed = 1;
  Block block(20, 3, params, 0.0f, random);  // the target's own rows, which are all accepted
  ASSERT_EQ(AcceptReject(block.args).num_accepted(), 3);
  const size_t before = block.counts.counts().size();
  block.Logit(3, 0) = kNan;
  EXPECT_FALSE(AcceptReject(block.args).finite);
  EXPECT_EQ(block.counts.counts().size(), before);
}

TEST(AcceptRejectTest, TheAuditChangesNoToken) {
  std::mt19937_64 random(9);
  for (int repeat = 0; repeat < 300; ++repeat) {
    SamplingParams params;
    params.seed = random();
    Block block(20, 3, params, 1.0f, random);
    if (repeat % 2 == 0) block.args.draft_log_probs = nullptr;
    const BlockVerdict without = AcceptReject(block.args);
    block.params.audit = true;
    const BlockVerdict with = AcceptReject(block.args);
    EXPECT_EQ(with.num_accepted(), without.num_accepted());
    EXPECT_EQ(with.next_token_id, without.next_token_id);
    EXPECT_TRUE(without.audit.empty());
    EXPECT_EQ(with.audit.size(), with.num_accepted() + 1);
  }
}

TEST(AcceptRejectTest, PlainDecodingDrawsTheBonus) {
  std::mt19937_64 random(4);
  SamplingParams params;
  params.seed = 12;
  Block block(50, 0, params, 0.0f, random);
  const BlockVerdict verdict = AcceptReject(block.args);
  EXPECT_EQ(verdict.num_accepted(), 0);
  std::vector<float> row(50);
  LogProbs(std::span(block.target_logits).first(50), params, row);
  const DrawKey key{.seed = 12, .position = 40};
  EXPECT_EQ(verdict.next_token_id, DrawFromLogProbs(row, Uniform(key, DrawPurpose::kBonus)));
}

TEST(AcceptRejectTest, TokensThatAreImpossibleForTheTargetAreNeverAccepted) {
  std::mt19937_64 random(5);
  for (int repeat = 0; repeat < 300; ++repeat) {
    SamplingParams params;
    params.seed = random();
    params.min_tokens = 100;
    params.held_back_token_ids = {5};
    Block block(20, 1, params, 1.0f, random);
    block.draft_token_ids = {5};
    block.args.draft_token_ids = block.draft_token_ids;
    std::vector<float> one_hot(20, -kInfinity);
    one_hot[5] = 0.0f;
    for (const float* q :
         {static_cast<const float*>(one_hot.data()), static_cast<const float*>(nullptr)}) {
      block.args.draft_log_probs = q;
      const BlockVerdict verdict = AcceptReject(block.args);
      EXPECT_EQ(verdict.num_accepted(), 0);
      EXPECT_NE(verdict.next_token_id, 5);
    }
  }
}

TEST(AcceptRejectTest, FoundTokensGiveTheOutputOfPlainDecoding) {
  std::mt19937_64 random(8);
  int accepted = 0;
  for (int repeat = 0; repeat < 300; ++repeat) {
    SamplingParams params;
    params.seed = random();
    params.presence_penalty = 0.3f;
    Block block(10, 4, params, 1.0f, random);
    block.args.draft_log_probs = nullptr;
    block.args.drafter = static_cast<uint8_t>(repeat % 3);  // which drafter found them is no matter
    const BlockVerdict verdict = AcceptReject(block.args);
    accepted += verdict.num_accepted();
    for (int32_t i = 0; i <= verdict.num_accepted(); ++i) {
      AcceptRejectArgs plain = block.args;
      plain.target_logits += static_cast<size_t>(i) * plain.logits_stride;
      plain.draft_token_ids = {};
      plain.position += static_cast<uint64_t>(i);
      plain.num_output_tokens += i;
      plain.drafter = 0;
      const int32_t expected =
          i < verdict.num_accepted() ? block.draft_token_ids[i] : verdict.next_token_id;
      ASSERT_EQ(AcceptReject(plain).next_token_id, expected);
      block.counts.Add(expected, /*is_output=*/true);
    }
    for (int32_t i = 0; i <= verdict.num_accepted(); ++i) {
      block.counts.Remove(
          i < verdict.num_accepted() ? block.draft_token_ids[i] : verdict.next_token_id,
          /*is_output=*/true);
    }
  }
  EXPECT_GT(accepted, 100);
}

// A prediction is often the answer to an earlier request with the same seed. The old rule compared
// p(d) with the number that had accepted d before, and then gave d too often.
TEST(AcceptRejectTest, APredictionWithTheSameSeedIsUnbiased) {
  constexpr int kRequests = 20000;
  const std::vector<float> logits = {std::log(0.7f), std::log(0.3f)};
  int num_first = 0;
  for (int seed = 0; seed < kRequests; ++seed) {
    SamplingParams params;
    params.seed = static_cast<uint64_t>(seed);
    TokenCounts counts;
    const std::vector<float> rows = {logits[0], logits[1], logits[0], logits[1]};
    std::vector<int32_t> prediction;
    int32_t answer = -1;
    for (int request = 0; request < 3; ++request) {
      const BlockVerdict verdict = AcceptReject({.target_logits = rows.data(),
                                                 .logits_stride = 2,
                                                 .vocabulary_size = 2,
                                                 .draft_token_ids = prediction,
                                                 .params = &params,
                                                 .counts = &counts,
                                                 .position = 3});
      answer = verdict.num_accepted() > 0 ? prediction[0] : verdict.next_token_id;
      prediction = {answer};
    }
    num_first += answer == 0 ? 1 : 0;
  }
  // Six standard deviations. The old rule gave 0.82 in the third request.
  EXPECT_NEAR(static_cast<double>(num_first) / kRequests, 0.7, 6 * std::sqrt(0.21 / kRequests));
}

TEST(AcceptRejectTest, ARejectedOneHotDraftIsNotDrawnAgain) {
  std::mt19937_64 random(6);
  int rejected = 0;
  for (int repeat = 0; repeat < 300; ++repeat) {
    SamplingParams params;
    params.seed = random();
    Block block(10, 1, params, 1.0f, random);
    block.args.draft_log_probs = nullptr;
    const BlockVerdict verdict = AcceptReject(block.args);
    if (verdict.num_accepted() == 1) continue;
    ++rejected;
    EXPECT_NE(verdict.next_token_id, block.draft_token_ids[0]);
  }
  EXPECT_GT(rejected, 50);
}

TEST(AcceptRejectTest, AnEmptyResidualDrawsFromTheTarget) {
  // q equals p, except that it claims more for the drafted token. The token is rejected, and p
  // exceeds q nowhere.
  std::mt19937_64 random(7);
  int rejected = 0;
  for (int repeat = 0; repeat < 50; ++repeat) {
    SamplingParams params;
    params.seed = random();
    Block block(12, 1, params, 0.0f, random);
    LogProbs(std::span(block.target_logits).first(12), params, block.draft_log_probs);
    block.draft_log_probs[block.draft_token_ids[0]] += 1.0f;
    const BlockVerdict verdict = AcceptReject(block.args);
    if (verdict.num_accepted() == 1) continue;
    ++rejected;
    EXPECT_GE(verdict.next_token_id, 0);
    EXPECT_LT(verdict.next_token_id, 12);
  }
  EXPECT_GT(rejected, 5);
}

TEST(AcceptRejectTest, LenientGreedyKeepsTokensThatAreNearlyBest) {
  SamplingParams params;
  params.temperature = 0;
  std::vector<float> logits = {0.0f,           std::log(0.5f), std::log(0.3f), -9.0f,
                               /*row 1*/ 0.0f, 1.0f,           0.0f,           0.0f};
  TokenCounts counts;
  const auto accepted = [&](int32_t drafted, float lenience) {
    params.lenience = lenience;
    const std::vector<int32_t> draft = {drafted};
    AcceptRejectArgs args;
    args.target_logits = logits.data();
    args.logits_stride = 4;
    args.vocabulary_size = 4;
    args.draft_token_ids = draft;
    args.params = &params;
    args.counts = &counts;
    const BlockVerdict verdict = AcceptReject(args);
    EXPECT_EQ(verdict.next_token_id, verdict.num_accepted() == 1 ? 1 : 0);
    return verdict.num_accepted() == 1;
  };
  EXPECT_TRUE(accepted(0, 1.0f));
  EXPECT_FALSE(accepted(1, 1.0f));
  EXPECT_TRUE(accepted(1, 0.49f));
  EXPECT_FALSE(accepted(1, 0.51f));
  EXPECT_FALSE(accepted(2, 0.49f));
  EXPECT_TRUE(accepted(2, 0.29f));
  params.logit_bias = {{2, 0.6f}};  // tokens are judged after the adjustments: 0.3 · e^0.6 = 0.55
  EXPECT_TRUE(accepted(2, 0.5f));
  params.min_tokens = 1;
  params.held_back_token_ids = {2};
  EXPECT_FALSE(accepted(2, 1e-6f));
}

TEST(ReportLogProbsTest, ListsTheLargestFirstAndLowerIdsAmongEquals) {
  const std::vector<float> logits = {1, 3, 2, 3, -40};
  const TokenLogProbs report = ReportLogProbs(logits, 4, 3);
  const double log_sum =
      std::log(std::exp(1.0) + 2 * std::exp(3.0) + std::exp(2.0) + std::exp(-40.0));
  EXPECT_NEAR(report.log_prob, -40 - log_sum, 1e-5);
  ASSERT_EQ(report.top.size(), 3u);
  EXPECT_EQ(report.top[0].token_id, 1);
  EXPECT_EQ(report.top[1].token_id, 3);
  EXPECT_EQ(report.top[2].token_id, 2);
  EXPECT_NEAR(report.top[2].log_prob, 2 - log_sum, 1e-6);
  EXPECT_EQ(ReportLogProbs(logits, 0, 20).top.size(), 5u);
  EXPECT_TRUE(ReportLogProbs(logits, 0, 0).top.empty());
}

TEST(IsDraftRowValidTest, TellsDistributionsFromOtherRows) {
  std::mt19937_64 random(8);
  for (const size_t size : {1, 8, 13, 1000, 128'256}) {
    std::vector<float> row = NormalRow(size, 2.0f, random);
    SamplingParams params;
    params.top_k = static_cast<int32_t>(size / 2);
    LogProbs(row, params, row);
    const int32_t likely = Argmax(row);
    EXPECT_TRUE(IsDraftRowValid(row, likely)) << "V " << size;
    EXPECT_FALSE(IsDraftRowValid(row, -1));
    EXPECT_FALSE(IsDraftRowValid(row, static_cast<int32_t>(size)));
    for (const float bad : {kNan, kInfinity, 0.5f}) {
      std::vector<float> broken = row;
      broken[size - 1] = bad;
      EXPECT_FALSE(IsDraftRowValid(broken, likely)) << "V " << size << ", " << bad;
    }
    std::vector<float> heavy = row;
    for (float& x : heavy) x -= 0.01f;
    EXPECT_FALSE(IsDraftRowValid(heavy, likely)) << "sums to 0.99";
    if (size > 1) {
      std::vector<float> without = row;
      without[likely == 0 ? 1 : 0] = -kInfinity;
      EXPECT_FALSE(IsDraftRowValid(without, likely == 0 ? 1 : 0))
          << "the token was not drawn from this row";
    }
  }
}

}  // namespace
}  // namespace tandem::testing::accept_reject_test
