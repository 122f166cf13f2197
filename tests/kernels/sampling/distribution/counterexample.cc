#include "tests/kernels/sampling/distribution/counterexample.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <utility>

#include "common/token_hash.h"
#include "kernels/sampling/accept_reject.h"
#include "kernels/sampling/draw.h"
#include "kernels/sampling/random/philox.h"
#include "kernels/sampling/transform/transform.h"

namespace tandem::testing {
namespace {

constexpr uint64_t kPosition = 11;

// [V] log-probabilities. The target's logits must be finite, so a probability of 0 becomes one that
// no double holds.
std::vector<float> LogOf(const std::vector<double>& probs) {
  std::vector<float> logs;
  logs.reserve(probs.size());
  for (const double p : probs) logs.push_back(p > 0 ? static_cast<float>(std::log(p)) : -1e4f);
  return logs;
}

int32_t DrawDraft(const std::vector<double>& q, const DrawKey& key) {
  return DrawFromLogProbs(LogOf(q), Uniform(key, DrawPurpose::kPropose));
}

// What is judged at one position.
struct Position {
  std::vector<double> p;
  std::vector<int32_t> children;           // draft tokens
  std::vector<std::vector<double>> drawn;  // q of the first children; the others were found
};

CounterexampleDraw Judge(const Position& at, uint64_t seed) {
  SamplingParams params;
  params.seed = seed;
  params.audit = true;
  std::vector<float> logits;  // [K+1, V]: no row after the first one matters here
  for (size_t row = 0; row <= at.children.size(); ++row) {
    for (const float logit : LogOf(at.p)) logits.push_back(logit);
  }
  std::vector<float> draft_log_probs;
  for (const std::vector<double>& q : at.drawn) {
    for (const float log_prob : LogOf(q)) draft_log_probs.push_back(log_prob);
  }
  const std::vector<int32_t> parents(at.children.size(), -1);
  TokenCounts counts;
  const BlockVerdict verdict =
      AcceptReject({.target_logits = logits.data(),
                    .logits_stride = at.p.size(),
                    .vocabulary_size = at.p.size(),
                    .draft_token_ids = at.children,
                    .draft_parents = parents,
                    .draft_log_probs = at.drawn.empty() ? nullptr : draft_log_probs.data(),
                    .num_found = at.drawn.empty() ? 0 : at.children.size() - at.drawn.size(),
                    .params = &params,
                    .counts = &counts,
                    .position = kPosition});
  const bool accepted = verdict.num_accepted() > 0;
  return {accepted ? at.children[static_cast<size_t>(verdict.path[0])] : verdict.next_token_id,
          verdict.audit[0]};
}

CounterexampleDraw DrawSortedSiblings(uint64_t seed, bool breaks_rule) {
  const std::vector<double> q = {0.6, 0.4};
  Position at = {
      .p = q, .children = {DrawDraft(q, {.seed = seed, .position = kPosition})}, .drawn = {q}};
  at.children.push_back(1 - at.children[0]);  // the only token that is left
  at.drawn.push_back(at.children[1] == 0 ? std::vector{1.0, 0.0} : std::vector{0.0, 1.0});
  if (breaks_rule && at.children[0] == 1) std::swap(at.children[0], at.children[1]);
  return Judge(at, seed);
}

CounterexampleDraw DrawSharedUniform(uint64_t seed, bool breaks_rule) {
  const std::vector<double> q = {0.7, 0.1, 0.1, 0.1};
  Position at = {.p = {0.1, 0.2, 0.3, 0.4}, .children = {}, .drawn = {q, q}};
  for (uint8_t model = 0; model < 2; ++model) {
    const uint8_t number = breaks_rule ? 0 : model;
    at.children.push_back(
        DrawDraft(q, {.seed = seed, .position = kPosition, .drafter = number, .sibling = number}));
  }
  return Judge(at, seed);
}

CounterexampleDraw DrawDroppedDuplicate(uint64_t seed, bool breaks_rule) {
  const std::vector<double> q = {0.7, 0.1, 0.1, 0.1};
  Position at = {.p = {0.1, 0.2, 0.3, 0.4}, .children = {}, .drawn = {q, q}};
  for (uint8_t sibling = 0; sibling < 2; ++sibling) {
    at.children.push_back(DrawDraft(q, {.seed = seed, .position = kPosition, .sibling = sibling}));
  }
  if (breaks_rule && at.children[0] == at.children[1]) {
    at.children.pop_back();
    at.drawn.pop_back();
  }
  return Judge(at, seed);
}

CounterexampleDraw DrawFoundFirst(uint64_t seed, bool breaks_rule) {
  const std::vector<double> q = {0.5, 0.25, 0.25};
  const int32_t drawn = DrawDraft(q, {.seed = seed, .position = kPosition});
  const int32_t found = drawn == 0 ? 1 : 0;
  if (!breaks_rule) return Judge({.p = q, .children = {drawn, found}, .drawn = {q}}, seed);
  std::vector<double> one_hot(3);
  one_hot[static_cast<size_t>(found)] = 1;
  return Judge({.p = q, .children = {found, drawn}, .drawn = {one_hot, q}}, seed);
}

// A first round drafted a token for this position too. It was discarded, because the token before
// it was rejected.
CounterexampleDraw DrawEarlierDraft(uint64_t seed, bool breaks_rule) {
  const std::vector<double> q = {0.5, 0.5};
  const int32_t discarded = DrawDraft(q, {.seed = seed, .position = kPosition});
  const bool drafts = breaks_rule ? discarded == 0 : ExtendTokenHash(seed, 0) % 2 == 0;
  if (!drafts) return Judge({.p = q, .children = {}, .drawn = {}}, seed);
  return Judge(
      {.p = q, .children = {DrawDraft(q, {.seed = seed, .position = kPosition})}, .drawn = {q}},
      seed);
}

// Accepts a one-hot draft token with min(1, p/q), as Leviathan et al. do: the number of the test is
// that of the position, in every request with this seed.
CounterexampleDraw JudgeByRatio(const Position& at, uint64_t seed) {
  if (at.children.empty()) return Judge(at, seed);
  const DrawKey key = {.seed = seed, .position = kPosition};
  int32_t token_id = at.children[0];
  if (!AcceptsDraft(Uniform(key, DrawPurpose::kAccept), 1, 1,
                    at.p[static_cast<size_t>(token_id)])) {
    std::vector<double> residual = at.p;
    residual[static_cast<size_t>(token_id)] = 0;
    std::vector<float> row = LogOf(residual);
    LogProbs(row, SamplingParams(), row);
    token_id = DrawFromLogProbs(row, Uniform(key, DrawPurpose::kResample));
  }
  return {token_id, SampleForAudit(LogOf(at.p), {}, at.children, token_id, key)};
}

CounterexampleDraw DrawThirdAnswer(const std::array<uint64_t, 3>& seeds, bool breaks_rule) {
  Position at = {.p = {0.7, 0.3}, .children = {}, .drawn = {}};
  CounterexampleDraw answer;
  for (const uint64_t seed : seeds) {
    answer = breaks_rule ? JudgeByRatio(at, seed) : Judge(at, seed);
    at.children = {answer.token_id};
  }
  return answer;
}

CounterexampleDraw DrawPrediction(uint64_t seed, bool breaks_rule) {
  return DrawThirdAnswer({seed, seed, seed}, breaks_rule);
}

}  // namespace

Counterexample SortedSiblings() {
  return {"SortedSiblings", {0.6, 0.4}, {1, 0}, DrawSortedSiblings};
}

Counterexample SharedUniform() {
  // Both siblings leave a mass of .6, and max(0, (0, 1/6, 1/3, 1/2) - q) divides it.
  return {"SharedUniform",
          {0.1, 0.2, 0.3, 0.4},
          {0.1, 0.1 + 0.6 * 2 / 21, 0.1 + 0.6 * 7 / 21, 0.1 + 0.6 * 12 / 21},
          DrawSharedUniform};
}

Counterexample DroppedDuplicate() {
  // Where the first token is drawn twice and rejected, (0, 1/6, 1/3, 1/2) stays in the place of
  // (0, 2/21, 7/21, 12/21).
  return {"DroppedDuplicate", {0.1, 0.2, 0.3, 0.4}, {0.1, 0.23, 0.3, 0.37}, DrawDroppedDuplicate};
}

Counterexample FoundFirst() {
  return {"FoundFirst", {0.5, 0.25, 0.25}, {0.625, 0.25, 0.125}, DrawFoundFirst};
}

Counterexample EarlierDraft() {
  return {"EarlierDraft", {0.5, 0.5}, {0.75, 0.25}, DrawEarlierDraft};
}

Counterexample Prediction() { return {"Prediction", {0.7, 0.3}, {0.82, 0.18}, DrawPrediction}; }

Counterexample PredictionWithOwnSeeds() {
  return {"PredictionWithOwnSeeds", {0.7, 0.3}, {0.7, 0.3}, [](uint64_t seed, bool breaks_rule) {
            return DrawThirdAnswer({3 * seed, 3 * seed + 1, 3 * seed + 2}, breaks_rule);
          }};
}

}  // namespace tandem::testing
