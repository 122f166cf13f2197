// Tests trees with a lenience l < 1. Lenience changes the distribution, so the law that is expected
// is not that of the target: it is computed from the rule in doubles. The tokens of 200,000
// requests are drawn through AcceptReject. Mistakes that are planted are caught with the same
// number of draws.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <ostream>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/sampling/accept_reject.h"
#include "kernels/sampling/draw.h"
#include "kernels/sampling/random/philox.h"
#include "kernels/sampling/reference.h"
#include "kernels/sampling/transform/transform.h"
#include "tests/kernels/sampling/distribution/goodness_of_fit.h"
#include "tests/kernels/sampling/distribution/synthetic_model.h"

namespace tandem::testing::lenient_tree_test {
namespace {

constexpr int32_t kVocabularySize = 7;
constexpr uint64_t kPosition = 2;

using Law = std::vector<double>;  // [V]

// A child of a node. `q` is what its token was drawn from; empty: the token was found.
struct Child {
  int32_t token_id;
  Law q;
};

enum class Mistake {
  kNone,
  kNoneInOwnStep,    // control of the mistakes below: the judge of this test, in doubles
  kReversesFound,    // found children are judged from the last to the first
  kSortsDrawn,       // drawn siblings are sorted by q
  kIgnoresLenience,  // l = 1
  // Mistakes in a judge of this test. AcceptReject cannot make them.
  kSharesUniform,    // one number tests all siblings
  kKeepsRejected,    // p keeps the found children that were rejected
  kLenientResidual,  // a rejection takes l · q out of p
};

Law Normalized(Law weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= sum;
  return weights;
}

Law Without(Law p, int32_t token_id) {
  p[static_cast<size_t>(token_id)] = 0;
  return Normalized(std::move(p));
}

// Returns the law of the token at a node with these children by the rule: child x is accepted with
// probability min(1, p(x) / (l q(x))), and then p becomes the plain residual.
Law LawOf(Law p, const std::vector<Child>& children, double lenience) {
  Law law(p.size());
  double left = 1;
  bool any_drawn = false;
  for (const Child& child : children) {
    if (child.q.empty() && any_drawn) break;  // decided by the draw from what is left
    any_drawn = !child.q.empty();
    const auto x = static_cast<size_t>(child.token_id);
    const double accepted = std::min(1.0, p[x] / (lenience * (any_drawn ? child.q[x] : 1)));
    law[x] += left * accepted;
    left *= 1 - accepted;
    // Where nothing is left of p, the child was accepted for certain.
    if (left > 0)
      p = any_drawn ? Normalized(ResidualReference(p, child.q)) : Without(p, child.token_id);
  }
  for (size_t x = 0; x < p.size(); ++x) law[x] += left * p[x];
  return law;
}

// ---------------------------------------------------------------- children of one node

enum class Kind { kFound, kWithReplacement, kWithoutReplacement, kDrawnThenFound };
constexpr const char* kKindNames[] = {"Found", "WithReplacement", "WithoutReplacement",
                                      "DrawnThenFound"};

Law ProbsAt(const SyntheticModel& model, std::span<const int32_t> context) {
  std::vector<float> logits(kVocabularySize);
  model.Logits(context, logits);
  return SamplingProbsReference(logits, SamplingParams(), TokenCounts(), 0);
}

struct Models {
  SyntheticModel target = SyntheticModel(kVocabularySize, 11);
  SyntheticModel drafter = target.Perturbed(13, 1.5f);
  Law p = ProbsAt(target, kPrompt);
  Law q = ProbsAt(drafter, kPrompt);
};

int32_t Favorite(const Law& q) {
  return static_cast<int32_t>(std::max_element(q.begin(), q.end()) - q.begin());
}

// Returns the children in the order in which they are judged. `first` and `second` are tokens that
// were drawn.
std::vector<Child> ChildrenOf(Kind kind, const Law& q, int32_t first, int32_t second) {
  if (kind == Kind::kFound) {
    std::vector<Child> found;
    for (Law left = q; found.size() < 3; left = Without(left, found.back().token_id)) {
      found.push_back({Favorite(left), {}});
    }
    return found;
  }
  std::vector<Child> children = {{first, q}};
  if (kind == Kind::kDrawnThenFound) {
    children.push_back({Favorite(Without(q, first)), {}});
  } else {
    children.push_back({second, kind == Kind::kWithReplacement ? q : Without(q, first)});
  }
  return children;
}

// Returns the law of the token over everything that may be drafted.
Law ExpectedLaw(Kind kind, const Models& models, double lenience) {
  Law law(kVocabularySize);
  for (int32_t first = 0; first < kVocabularySize; ++first) {
    const Law second_q = kind == Kind::kWithoutReplacement ? Without(models.q, first) : models.q;
    for (int32_t second = 0; second < kVocabularySize; ++second) {
      const double chance = models.q[first] * second_q[second];
      if (chance == 0) continue;
      const Law given = LawOf(models.p, ChildrenOf(kind, models.q, first, second), lenience);
      for (int32_t x = 0; x < kVocabularySize; ++x) law[x] += chance * given[x];
    }
  }
  return law;
}

void PlantInChildren(Mistake mistake, std::vector<Child>& children) {
  if (mistake == Mistake::kReversesFound) std::reverse(children.begin(), children.end());
  if (mistake != Mistake::kSortsDrawn) return;
  Child& a = children[0];
  Child& b = children[1];
  if (a.q[a.token_id] < a.q[b.token_id]) std::swap(a.token_id, b.token_id);
}

// The rule in doubles, with a mistake.
int32_t JudgeByOwnStep(Law p, const std::vector<Child>& children, const SamplingParams& params,
                       Mistake mistake) {
  const auto lenience = static_cast<double>(params.lenience);
  DrawKey key = {.seed = params.seed, .position = kPosition};
  bool any_drawn = false;
  for (const Child& child : children) {
    if (child.q.empty() && any_drawn) break;
    any_drawn = !child.q.empty();
    const auto x = static_cast<size_t>(child.token_id);
    const double u = Uniform(key, DrawPurpose::kAccept);
    if (AcceptsDraft(u, lenience, any_drawn ? child.q[x] : 1, p[x])) return child.token_id;
    if (!any_drawn && mistake != Mistake::kKeepsRejected) p = Without(p, child.token_id);
    if (any_drawn) {
      Law q = child.q;
      if (mistake == Mistake::kLenientResidual) {
        for (double& prob : q) prob *= lenience;
      }
      p = Normalized(ResidualReference(p, q));
    }
    key.sibling += mistake == Mistake::kSharesUniform ? 0 : 1;
  }
  key.sibling = 0;
  return DrawReference(p, Uniform(key, DrawPurpose::kResample));
}

struct Draft {
  std::vector<int32_t> token_ids;
  std::vector<int32_t> parents;
  std::vector<float> log_probs;  // [K - num_found, V]
  size_t num_found = 0;
};

Draft DraftOf(const std::vector<Child>& children) {
  Draft draft;
  for (const Child& child : children) {
    draft.token_ids.push_back(child.token_id);
    draft.parents.push_back(-1);
    draft.num_found += child.q.empty() ? 1 : 0;
    for (const double prob : child.q) draft.log_probs.push_back(static_cast<float>(std::log(prob)));
  }
  return draft;
}

BlockVerdict Judge(const Draft& draft, std::span<const float> logits, const SamplingParams& params,
                   uint64_t position) {
  TokenCounts counts;
  return AcceptReject(
      {.target_logits = logits.data(),
       .logits_stride = kVocabularySize,
       .vocabulary_size = kVocabularySize,
       .draft_token_ids = draft.token_ids,
       .draft_parents = draft.parents,
       .draft_log_probs = draft.log_probs.empty() ? nullptr : draft.log_probs.data(),
       .num_found = draft.log_probs.empty() ? 0 : draft.num_found,
       .params = &params,
       .counts = &counts,
       .position = position});
}

int32_t DrawDraft(const Law& q, uint64_t seed, uint8_t sibling) {
  const DrawKey key = {.seed = seed, .position = kPosition, .sibling = sibling};
  return DrawReference(q, Uniform(key, DrawPurpose::kPropose));
}

// Returns how often each token was drawn by requests with seeds 0, 1, 2, …
std::vector<int64_t> Draw(Kind kind, const Models& models, float lenience, Mistake mistake) {
  std::vector<float> logits;  // [4, V]: all rows are the first one, which alone matters
  for (int row = 0; row < 4; ++row) {
    logits.resize(logits.size() + kVocabularySize);
    models.target.Logits(kPrompt, std::span(logits).last(kVocabularySize));
  }
  SamplingParams params;
  params.lenience = mistake == Mistake::kIgnoresLenience ? 1.0f : lenience;
  std::vector<int64_t> counts(kVocabularySize);
  for (int64_t draw = 0; draw < kNumDraws; ++draw) {
    params.seed = static_cast<uint64_t>(draw);
    const int32_t first = DrawDraft(models.q, params.seed, 0);
    const Law second_q = kind == Kind::kWithoutReplacement ? Without(models.q, first) : models.q;
    std::vector<Child> children =
        ChildrenOf(kind, models.q, first, DrawDraft(second_q, params.seed, 1));
    PlantInChildren(mistake, children);
    int32_t token_id = -1;
    if (mistake == Mistake::kNoneInOwnStep || mistake >= Mistake::kSharesUniform) {
      token_id = JudgeByOwnStep(models.p, children, params, mistake);
    } else {
      const BlockVerdict verdict = Judge(DraftOf(children), logits, params, kPosition);
      token_id = verdict.path.empty() ? verdict.next_token_id
                                      : children[static_cast<size_t>(verdict.path[0])].token_id;
    }
    ++counts[static_cast<size_t>(token_id)];
  }
  return counts;
}

class LenientTreeTest : public ::testing::TestWithParam<std::tuple<Kind, float>> {};

TEST_P(LenientTreeTest, HasTheDistributionOfTheRule) {
  const auto [kind, lenience] = GetParam();
  const Models models;
  const Law expected = ExpectedLaw(kind, models, static_cast<double>(lenience));
  EXPECT_GT(GTestPValue(expected, Draw(kind, models, lenience, Mistake::kNone)), kFalseAlarmRate);
  EXPECT_GT(GTestPValue(expected, Draw(kind, models, lenience, Mistake::kNoneInOwnStep)),
            kFalseAlarmRate);
  // Lenience shows, or the test would show nothing.
  EXPECT_LT(GTestPValue(expected, Draw(kind, models, lenience, Mistake::kIgnoresLenience)),
            kFalseAlarmRate);
}

INSTANTIATE_TEST_SUITE_P(All, LenientTreeTest,
                         ::testing::Combine(::testing::Values(Kind::kFound, Kind::kWithReplacement,
                                                              Kind::kWithoutReplacement,
                                                              Kind::kDrawnThenFound),
                                            ::testing::Values(0.8f, 0.4f)),
                         [](const auto& test) {
                           return std::string(
                                      kKindNames[static_cast<int>(std::get<0>(test.param))]) +
                                  (std::get<1>(test.param) < 0.5f ? "Much" : "Little");
                         });

struct Planted {
  std::string name;
  Kind kind;
  Mistake mistake;
};
void PrintTo(const Planted& planted, std::ostream* out) { *out << planted.name; }

class PlantedLenientMistakeTest : public ::testing::TestWithParam<Planted> {};

TEST_P(PlantedLenientMistakeTest, IsCaught) {
  constexpr float kLenience = 0.8f;
  const Models models;
  const Law expected = ExpectedLaw(GetParam().kind, models, static_cast<double>(kLenience));
  const std::vector<int64_t> counts = Draw(GetParam().kind, models, kLenience, GetParam().mistake);
  EXPECT_LT(GTestPValue(expected, counts), kFalseAlarmRate);
}

INSTANTIATE_TEST_SUITE_P(
    All, PlantedLenientMistakeTest,
    ::testing::Values(Planted{"ReversesFound", Kind::kFound, Mistake::kReversesFound},
                      Planted{"SortsDrawn", Kind::kWithReplacement, Mistake::kSortsDrawn},
                      Planted{"SharesUniform", Kind::kFound, Mistake::kSharesUniform},
                      Planted{"KeepsRejected", Kind::kFound, Mistake::kKeepsRejected},
                      Planted{"LenientResidual", Kind::kWithReplacement,
                              Mistake::kLenientResidual}),
    [](const auto& test) { return test.param.name; });

// ---------------------------------------------------------------- two levels

// A found tree: two children of the pending token, and two more of the first child. Both tokens
// follow the rule, each with the p of its own path.
TEST(LenientFoundTreeTest, HasTheDistributionOfTheRuleOverTwoTokens) {
  constexpr float kLenience = 0.6f;
  const Models models;
  const std::vector<Child> first = ChildrenOf(Kind::kFound, models.q, -1, -1);
  const auto context_of = [](int32_t token_id) {
    return std::vector<int32_t>{kPrompt[0], kPrompt[1], token_id};
  };
  const std::vector<int32_t> after_first = context_of(first[0].token_id);
  const std::vector<Child> second =
      ChildrenOf(Kind::kFound, ProbsAt(models.drafter, after_first), -1, -1);
  const Draft draft = {
      {first[0].token_id, first[1].token_id, second[0].token_id, second[1].token_id},
      {-1, -1, 0, 0},
      {},
      0};

  Law expected;
  const auto lenience = static_cast<double>(kLenience);
  const Law first_law = LawOf(models.p, {first[0], first[1]}, lenience);
  for (int32_t x = 0; x < kVocabularySize; ++x) {
    Law law = ProbsAt(models.target, context_of(x));
    if (x == first[0].token_id) law = LawOf(law, {second[0], second[1]}, lenience);
    for (const double prob : law) expected.push_back(first_law[x] * prob);
  }

  std::vector<float> logits(5 * kVocabularySize);
  const auto row = [&](size_t i) {
    return std::span(logits).subspan(i * kVocabularySize, kVocabularySize);
  };
  models.target.Logits(kPrompt, row(0));
  for (size_t i = 0; i < 2; ++i) models.target.Logits(context_of(first[i].token_id), row(i + 1));
  SamplingParams params;
  params.lenience = kLenience;
  std::vector<int64_t> counts(expected.size());
  for (int64_t i = 0; i < kNumDraws; ++i) {
    params.seed = static_cast<uint64_t>(i);
    const BlockVerdict verdict = Judge(draft, logits, params, kPosition);
    std::vector<int32_t> output;
    for (const int32_t node : verdict.path) output.push_back(draft.token_ids[node]);
    output.push_back(verdict.next_token_id);
    if (output.size() < 2) {  // the next round drafts nothing
      std::vector<float> next(kVocabularySize);
      models.target.Logits(context_of(output[0]), next);
      output.push_back(Judge({}, next, params, kPosition + 1).next_token_id);
    }
    const int32_t cell = output[0] * kVocabularySize + output[1];
    ++counts[static_cast<size_t>(cell)];
  }
  EXPECT_GT(GTestPValue(expected, counts), kFalseAlarmRate);
}

}  // namespace
}  // namespace tandem::testing::lenient_tree_test
