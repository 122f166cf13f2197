#include "common/model/heads/guess_tree.h"

#include <algorithm>
#include <cmath>

#include "kernels/sampling/log_probs_report.h"
#include "kernels/sampling/transform/row_kernels.h"

namespace tandem {
namespace {

// A token that may be added: guess `rank` of depth `depth` after node `parent`.
struct Offer {
  double path_chance;  // the product of the chances on its path
  double parent_chance;
  int32_t parent;
  uint32_t depth;
  uint32_t rank;
};

// Equal chances are ordered too, so that the tree does not depend on the heap.
bool IsLess(const Offer& a, const Offer& b) {
  if (a.path_chance != b.path_chance) return a.path_chance < b.path_chance;
  if (a.parent != b.parent) return a.parent > b.parent;
  return a.rank > b.rank;
}

}  // namespace

void Sharpen(std::span<Guess> guesses, double temperature) {
  if (guesses.empty() || temperature == 1) return;
  // A chance p becomes p^(1/T), divided by the sum over all tokens. A token with a chance of less
  // than `least` adds at most p * least^(1/T - 1) if T < 1.
  const double power = 1 / std::max(temperature, kSharpest);
  const double least = guesses.back().chance;
  double others = 1;
  double sum = 0;
  for (const Guess& guess : guesses) {
    others -= guess.chance;
    sum += std::pow(double{guess.chance}, power);
  }
  if (others > 0 && least > 0) sum += others * std::pow(least, power - 1);
  if (!(sum > 0)) return;
  for (Guess& guess : guesses) {
    guess.chance = static_cast<float>(std::pow(double{guess.chance}, power) / sum);
  }
}

Guess OfTarget(std::span<const int32_t> token_map, Guess guess) {
  if (!token_map.empty()) guess.token_id = token_map[static_cast<size_t>(guess.token_id)];
  return guess;
}

Guess GuessOf(const TopLogProb& top) {
  return {.token_id = top.token_id, .chance = std::min(1.0f, std::exp(top.log_prob))};
}

std::vector<Guess> LikeliestGuesses(std::span<const float> logits) {
  std::vector<Guess> guesses;
  if (!row::IsFinite(logits)) return guesses;
  for (const TopLogProb& top : ReportLogProbs(logits, 0, kGuessesOfHead).top) {
    guesses.push_back(GuessOf(top));
  }
  return guesses;
}

GuessTree GrowGuessTree(std::span<const std::vector<Guess>> guesses, const GuessLimits& limits) {
  GuessTree tree;
  const size_t depth = std::min<size_t>(limits.depth, guesses.size());
  const bool is_chain = limits.nodes == 0;
  const size_t most = is_chain ? depth : limits.nodes;
  std::vector<Offer> offers;  // a heap: the likeliest is the first
  const auto offer = [&](double parent_chance, int32_t parent, uint32_t at, uint32_t rank) {
    if (at >= depth || rank >= guesses[at].size()) return;
    const double chance = guesses[at][rank].chance;
    if (!(chance > 0)) return;
    offers.push_back({parent_chance * chance, parent_chance, parent, at, rank});
    std::push_heap(offers.begin(), offers.end(), IsLess);
  };
  offer(1, -1, 0, 0);
  while (!offers.empty() && tree.token_ids.size() < most) {
    std::pop_heap(offers.begin(), offers.end(), IsLess);
    const Offer best = offers.back();
    offers.pop_back();
    const Guess& guess = guesses[best.depth][best.rank];
    const auto node = static_cast<int32_t>(tree.token_ids.size());
    tree.token_ids.push_back(guess.token_id);
    tree.parents.push_back(best.parent);
    tree.chances.push_back(guess.chance);
    offer(best.path_chance, node, best.depth + 1, 0);
    // The next sibling is offered after this one, so siblings keep their order.
    if (!is_chain) offer(best.parent_chance, best.parent, best.depth, best.rank + 1);
  }
  return tree;
}

}  // namespace tandem
