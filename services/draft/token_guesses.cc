#include "services/draft/token_guesses.h"

#include <algorithm>

namespace tandem {
namespace {

// A row that is computed early pays if its chance of being needed is larger than what it costs in
// passes of one row.
constexpr double kRowCost = 0.3;
// Weight of a new observation.
constexpr double kWeight = 0.05;
// Where guesses do not pay, one token is guessed at every place of this number.
constexpr uint32_t kPlacesPerTrial = 16;

// Number of tokens before `place` that agree with those at the end, at most `most`.
size_t Agreement(std::span<const int32_t> text, size_t place, size_t most) {
  size_t length = 0;
  while (length < most && length < place &&
         text[place - 1 - length] == text[text.size() - 1 - length]) {
    ++length;
  }
  return length;
}

}  // namespace

TokenGuesses::Guess TokenGuesses::After(std::span<const int32_t> text, size_t most) {
  Guess guess;
  if (text.size() > kHistory) text = text.last(kHistory);
  if (most == 0 || text.size() <= kLeastOrder) return guess;
  size_t best = 0;  // the place after which the text is copied
  for (size_t place = text.size() - 1; place >= kLeastOrder && guess.order < kMostOrder; --place) {
    if (text[place - 1] != text.back()) continue;
    const size_t order = Agreement(text, place, kMostOrder);
    if (order < kLeastOrder || order <= guess.order) continue;
    guess.order = order;
    best = place;
  }
  if (guess.order == 0) return guess;
  size_t count = 0;
  double chance = chances_[guess.order];
  while (count < std::min(most, text.size() - best) && chance > kRowCost) {
    ++count;
    chance *= chances_[guess.order];
  }
  if (count == 0 && ++num_passed_over_ >= kPlacesPerTrial) {
    num_passed_over_ = 0;
    count = 1;
  }
  const auto begin = text.begin() + static_cast<ptrdiff_t>(best);
  guess.token_ids.assign(begin, begin + static_cast<ptrdiff_t>(count));
  return guess;
}

void TokenGuesses::OnDrawn(const Guess& guess, size_t num_right) {
  double& chance = chances_[guess.order];
  for (size_t i = 0; i < num_right; ++i) chance += kWeight * (1 - chance);
  if (num_right < guess.token_ids.size()) chance -= kWeight * chance;
}

}  // namespace tandem
