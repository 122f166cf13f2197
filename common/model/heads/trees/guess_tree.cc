#include "common/model/heads/trees/guess_tree.h"

#include <algorithm>
#include <cmath>
#include <deque>

#include "kernels/sampling/log_probs_report.h"
#include "kernels/sampling/transform/row_kernels.h"

namespace tandem {
namespace {

// A token that may be added: guess `rank` of those that may follow node `parent`.
struct Offer {
  double path_chance;  // the product of the chances on its path
  double parent_chance;
  int32_t parent;
  uint32_t depth;
  uint32_t rank;
  const std::vector<Guess>* guesses;
};

// Equal chances are ordered too, so that the tree does not depend on the heap.
bool IsLess(const Offer& a, const Offer& b) {
  if (a.path_chance != b.path_chance) return a.path_chance < b.path_chance;
  if (a.parent != b.parent) return a.parent > b.parent;
  return a.rank > b.rank;
}

// Returns the draft tokens from the first one to this node.
std::vector<int32_t> PathTo(const GuessTree& tree, int32_t node) {
  std::vector<int32_t> path;
  for (; node >= 0; node = tree.parents[static_cast<size_t>(node)]) {
    path.push_back(tree.token_ids[static_cast<size_t>(node)]);
  }
  std::reverse(path.begin(), path.end());
  return path;
}

}  // namespace

double SharpnessAt(double temperature) { return 1 / std::max(temperature, kSharpest); }

void Sharpen(std::span<Guess> guesses, double temperature) {
  if (guesses.empty() || temperature == 1) return;
  // A chance p becomes p^(1/T), divided by the sum over all tokens. A token with a chance of less
  // than `least` adds at most p * least^(1/T - 1) if T < 1.
  const double power = SharpnessAt(temperature);
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

void KeepFirst(int32_t count, std::vector<Guess>& guesses) {
  if (guesses.size() > static_cast<size_t>(count))
    guesses.erase(guesses.begin() + count, guesses.end());
}

Guess GuessOf(const TopLogProb& top, float log_prob_of_zero) {
  return {.token_id = top.token_id,
          .chance = std::min(1.0f, std::exp(top.log_prob)),
          .logit = top.log_prob - log_prob_of_zero};
}

std::vector<Guess> LikeliestGuesses(std::span<const float> logits, int32_t count) {
  std::vector<Guess> guesses;
  if (!row::IsFinite(logits)) return guesses;
  for (const TopLogProb& top : ReportLogProbs(logits, 0, count).top) {
    guesses.push_back({.token_id = top.token_id,
                       .chance = std::min(1.0f, std::exp(top.log_prob)),
                       .logit = logits[static_cast<size_t>(top.token_id)]});
  }
  return guesses;
}

GuessTree GrowGuessTree(std::span<const std::vector<Guess>> guesses, const GuessLimits& limits,
                        const AdjustGuesses& adjust) {
  GuessTree tree;
  const size_t depth = std::min<size_t>(limits.depth, guesses.size());
  const bool is_chain = limits.nodes == 0;
  const size_t most = is_chain ? depth : limits.nodes;
  std::deque<std::vector<Guess>> adjusted;  // those of the nodes in the tree
  std::vector<Offer> offers;                // a heap: the likeliest is the first
  const auto offer = [&](Offer next) {
    if (next.rank >= next.guesses->size()) return;
    const double chance = (*next.guesses)[next.rank].chance;
    if (!(chance > 0)) return;
    next.path_chance = next.parent_chance * chance;
    offers.push_back(next);
    std::push_heap(offers.begin(), offers.end(), IsLess);
  };
  const auto offer_first_after = [&](int32_t node, double path_chance, uint32_t at) {
    if (at >= depth) return;
    const std::vector<Guess>* after = &guesses[at];
    if (adjust) {
      adjust(PathTo(tree, node), adjusted.emplace_back(*after));
      after = &adjusted.back();
    }
    offer({.path_chance = 0,
           .parent_chance = path_chance,
           .parent = node,
           .depth = at,
           .rank = 0,
           .guesses = after});
  };
  offer_first_after(-1, 1, 0);
  while (!offers.empty() && tree.token_ids.size() < most) {
    std::pop_heap(offers.begin(), offers.end(), IsLess);
    Offer best = offers.back();
    offers.pop_back();
    const Guess& guess = (*best.guesses)[best.rank];
    const auto node = static_cast<int32_t>(tree.token_ids.size());
    tree.token_ids.push_back(guess.token_id);
    tree.parents.push_back(best.parent);
    tree.chances.push_back(guess.chance);
    offer_first_after(node, best.path_chance, best.depth + 1);
    // The next sibling is offered after this one, so siblings keep their order.
    ++best.rank;
    if (!is_chain) offer(best);
  }
  return tree;
}

}  // namespace tandem
