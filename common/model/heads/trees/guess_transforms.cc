#include "common/model/heads/trees/guess_transforms.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/sampling/transform/transform.h"

namespace tandem {
namespace {

// Sums of chances are not more exact than this. So others are taken to have at least this chance.
constexpr double kLeastOfOthers = 1e-7;
// A guess that transforms make less likely is left out: a bias of -100 forbids a token.
constexpr float kLeastChance = 1e-9f;
// Favored tokens that are looked at: some of them may be guesses anyway.
constexpr size_t kMaxFavored = size_t{kGuessesToTransform} + size_t{kGuessesOfHead};

bool Has(std::span<const Guess> guesses, int32_t token_id) {
  return std::any_of(guesses.begin(), guesses.end(),
                     [&](const Guess& guess) { return guess.token_id == token_id; });
}

}  // namespace

std::optional<GuessTransforms> GuessTransforms::After(const Text& text) {
  // What changes no logit here changes none after draft tokens either.
  if (!AdjustsLogits(*text.params, text.num_output_tokens)) return std::nullopt;
  return GuessTransforms(text);
}

GuessTransforms::GuessTransforms(const Text& text)
    : text_(text),
      has_penalties_(HasPenalties(*text.params)),
      biases_(text.params->logit_bias.begin(), text.params->logit_bias.end()) {
  std::vector<std::pair<int32_t, float>> favored;
  for (const auto& entry : text.params->logit_bias) {
    if (entry.second > 0) favored.push_back(entry);
  }
  std::sort(favored.begin(), favored.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  favored.resize(std::min(favored.size(), kMaxFavored));
  favored_.reserve(favored.size());
  for (const auto& entry : favored) favored_.push_back(entry.first);
  const auto held_back = HeldBack(*text.params, text.num_output_tokens, text.vocabulary_size);
  held_back_.assign(held_back.begin(), held_back.end());
  std::sort(held_back_.begin(), held_back_.end());
}

void GuessTransforms::Apply(std::span<const int32_t> path, double sharpness,
                            std::vector<Guess>& guesses) const {
  if (guesses.empty()) return;
  double others = 1;
  for (const Guess& guess : guesses) others -= guess.chance;
  others = std::max(others, kLeastOfOthers);
  AddFavored(others, sharpness, guesses);
  const bool holds_back = text_.num_output_tokens + static_cast<int64_t>(path.size()) <
                          int64_t{text_.params->min_tokens};
  // Logs of what chances are proportional to. A bias may be too large for an exponential.
  std::vector<double> logs;
  double largest = std::log(others);
  for (const Guess& guess : guesses) {
    const double change = double{Adjusted(guess, path)} - double{guess.logit};
    const bool is_held_back =
        holds_back && std::binary_search(held_back_.begin(), held_back_.end(), guess.token_id);
    logs.push_back(is_held_back || !(guess.chance > 0)
                       ? -std::numeric_limits<double>::infinity()
                       : std::log(double{guess.chance}) + sharpness * change);
    largest = std::max(largest, logs.back());
  }
  double sum = std::exp(std::log(others) - largest);
  for (const double log : logs) sum += std::exp(log - largest);
  for (size_t i = 0; i < guesses.size(); ++i) {
    guesses[i].chance = static_cast<float>(std::exp(logs[i] - largest) / sum);
  }
  std::erase_if(guesses, [](const Guess& guess) { return guess.chance < kLeastChance; });
  std::stable_sort(guesses.begin(), guesses.end(),
                   [](const Guess& a, const Guess& b) { return a.chance > b.chance; });
  KeepFirst(kGuessesOfHead, guesses);
}

void GuessTransforms::AddFavored(double others, double sharpness,
                                 std::vector<Guess>& guesses) const {
  const size_t num_listed = guesses.size();
  const Guess last = guesses.back();
  if (num_listed >= text_.vocabulary_size || !(last.chance > 0)) return;
  const double average = std::min(others / static_cast<double>(text_.vocabulary_size - num_listed),
                                  double{last.chance});
  const double logit = double{last.logit} + std::log(average / double{last.chance}) / sharpness;
  for (const int32_t token_id : favored_) {
    if (Has(std::span(guesses).first(num_listed), token_id)) continue;
    guesses.push_back({.token_id = token_id,
                       .chance = static_cast<float>(average),
                       .logit = static_cast<float>(logit)});
  }
}

float GuessTransforms::Adjusted(const Guess& guess, std::span<const int32_t> path) const {
  float logit = guess.logit;
  if (has_penalties_) {
    const auto& counts = text_.counts->counts();
    const auto counted = counts.find(guess.token_id);
    TokenCounts::Count count = counted == counts.end() ? TokenCounts::Count() : counted->second;
    count.output += text_.newest_token_id == guess.token_id ? 1 : 0;
    count.output += static_cast<int32_t>(std::count(path.begin(), path.end(), guess.token_id));
    if (count.prompt + count.output > 0) logit = PenalizedLogit(logit, *text_.params, count);
  }
  const auto bias = biases_.find(guess.token_id);
  return bias == biases_.end() ? logit : BiasedLogit(logit, bias->second);
}

AdjustGuesses AdjustmentBy(const GuessTransforms* transforms, double sharpness) {
  if (transforms == nullptr) return nullptr;
  return [transforms, sharpness](std::span<const int32_t> path, std::vector<Guess>& guesses) {
    transforms->Apply(path, sharpness, guesses);
  };
}

}  // namespace tandem
