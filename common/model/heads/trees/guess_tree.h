// The tree of the likeliest guesses of heads that guess each depth by itself (Cai et al. 2024,
// "Medusa", arXiv 2401.10774, section 2.1.2).
#ifndef TANDEM_COMMON_MODEL_HEADS_TREES_GUESS_TREE_H_
#define TANDEM_COMMON_MODEL_HEADS_TREES_GUESS_TREE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/sampling/accept_reject.h"

namespace tandem {

// Draft tokens, likeliest first. A parent comes before its children, and siblings are in descending
// order of their chances.
struct GuessTree {
  std::vector<int32_t> token_ids;
  std::vector<int32_t> parents;  // as DraftShape says, also for a chain
  std::vector<float> chances;    // [i]: P(token i | its parent, and no more), in (0, 1]
};

// How large a tree may be.
struct GuessLimits {
  uint32_t depth = 0;  // tokens on the longest path
  uint32_t nodes = 0;  // tokens of a tree; 0: only a chain
};

// Guesses that are taken of one head.
inline constexpr int32_t kGuessesOfHead = 8;
// Guesses that are looked at where transforms of a request may take the first ones away.
inline constexpr int32_t kGuessesToTransform = kMaxTopLogProbs;

// One guess of a head.
struct Guess {
  int32_t token_id;
  float chance;     // in [0, 1]
  float logit = 0;  // as the head computed it; from a GPU, up to rounding
};

// Turns chances at temperature 1 into those of a target that draws at `temperature`. `guesses` are
// the likeliest tokens, likeliest first. The others are taken for as likely as the last of them.
// A greedy target (temperature 0) takes the likeliest guess more often than chances at temperature
// 1 say, and less often than always. Below kSharpest, chances are therefore those at kSharpest,
// which was the fastest of four values (docs/benchmarks.md#heads).
inline constexpr double kSharpest = 0.4;
// Returns the exponent that Sharpen raises chances to.
double SharpnessAt(double temperature);
void Sharpen(std::span<Guess> guesses, double temperature);

// Returns a guess with the target's id of its token. `token_map` has the target's ids of the tokens
// that a drafter knows; empty: they are the same.
Guess OfTarget(std::span<const int32_t> token_map, Guess guess);

// Returns the `count` likeliest tokens of a row of logits, likeliest first, with their chances at
// temperature 1. Empty: a logit is not finite.
std::vector<Guess> LikeliestGuesses(std::span<const float> logits, int32_t count);
// Drops all but the first `count` guesses.
void KeepFirst(int32_t count, std::vector<Guess>& guesses);
// Returns the guess that an entry of the row's log-softmax stands for.
//   log_prob_of_zero  what the log-softmax makes of a logit of 0
Guess GuessOf(const TopLogProb& top, float log_prob_of_zero);

// Changes the guesses that may follow `path`, draft tokens from the first one on, and leaves them
// in descending order.
using AdjustGuesses =
    std::function<void(std::span<const int32_t> path, std::vector<Guess>& guesses)>;

// Returns the tokens whose paths have the largest products of chances. `guesses[d]` are those for
// depth d, in descending order. A guess whose chance is 0 is left out. `adjust` makes the guesses
// after a path of those for its depth; empty: they are the same after each path.
GuessTree GrowGuessTree(std::span<const std::vector<Guess>> guesses, const GuessLimits& limits,
                        const AdjustGuesses& adjust = nullptr);

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_HEADS_TREES_GUESS_TREE_H_
