// What a request does to the target's logits, applied to guesses of the target's tokens.
#ifndef TANDEM_COMMON_MODEL_HEADS_TREES_GUESS_TRANSFORMS_H_
#define TANDEM_COMMON_MODEL_HEADS_TREES_GUESS_TRANSFORMS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/model/heads/trees/guess_tree.h"
#include "kernels/sampling/transform/sampling_params.h"
#include "kernels/sampling/transform/token_counts.h"

namespace tandem {

// The transforms of AdjustLogits: penalties, biases and the min_tokens mask. A guess is a one-hot
// draft, which the target's own draw judges. So the output is the same whatever is guessed, and
// these are estimates:
//   - A head is taken for the target: its logits decide what a repetition penalty does.
//   - Tokens that are not among the kGuessesToTransform likeliest ones of a head keep the chance
//     that they have together. A token among them with a positive bias is taken for as likely as
//     the average of them before its bias.
//   - Top-k, top-p and min-p are not applied.
class GuessTransforms {
 public:
  // The text that guesses follow.
  struct Text {
    const SamplingParams* params;  // the request's
    const TokenCounts* counts;     // without the newest token
    int32_t newest_token_id;       // an output token
    int32_t num_output_tokens;     // with the newest one
    size_t vocabulary_size;        // the target's
  };

  // Returns nothing if no transform changes a logit after this text. The params and the counts must
  // outlive the transforms, and may not change.
  static std::optional<GuessTransforms> After(const Text& text);

  // Changes the chances of the guesses that follow `path`, draft tokens from the first one on. The
  // transformed guesses are the kGuessesOfHead likeliest ones, likeliest first, without those that
  // the target cannot, or all but cannot, draw.
  //   guesses  likeliest first, with the target's ids. Chances are exp(logit * sharpness) divided
  //            by the sum over all tokens, as Sharpen leaves them for SharpnessAt(temperature)
  void Apply(std::span<const int32_t> path, double sharpness, std::vector<Guess>& guesses) const;

 private:
  explicit GuessTransforms(const Text& text);

  // Appends the tokens with the largest positive biases that `guesses` lacks. `others` is the
  // chance of all tokens that it lacks.
  void AddFavored(double others, double sharpness, std::vector<Guess>& guesses) const;
  // Returns the logit of a guess after penalties and bias.
  float Adjusted(const Guess& guess, std::span<const int32_t> path) const;

  Text text_;
  bool has_penalties_;
  std::unordered_map<int32_t, float> biases_;  // by token
  std::vector<int32_t> favored_;               // tokens with the largest positive biases
  std::vector<int32_t> held_back_;             // sorted; those of the min_tokens mask
};

// Returns what changes guesses as `transforms` do. Empty: they are null. The result must not
// outlive them.
AdjustGuesses AdjustmentBy(const GuessTransforms* transforms, double sharpness);

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_HEADS_TREES_GUESS_TRANSFORMS_H_
