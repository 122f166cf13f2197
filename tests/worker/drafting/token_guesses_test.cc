#include "services/draft/token_guesses.h"

#include <gtest/gtest.h>

#include <vector>

namespace tandem {
namespace {

using Tokens = std::vector<int32_t>;

TEST(TokenGuessesTest, CopiesWhatFollowedTheLongestAgreement) {
  TokenGuesses guesses;
  const TokenGuesses::Guess guess = guesses.After(Tokens{1, 2, 3, 7, 9, 2, 3, 8, 1, 2, 3}, 1);
  EXPECT_EQ(guess.order, 3u) << "1 2 3 stood there before 7, and 2 3 alone before 8";
  EXPECT_EQ(guess.token_ids, Tokens{7});
}

TEST(TokenGuessesTest, OfEqualPlacesTheNewestIsCopied) {
  TokenGuesses guesses;
  EXPECT_EQ(guesses.After(Tokens{2, 3, 7, 2, 3, 8, 2, 3}, 1).token_ids, Tokens{8});
}

TEST(TokenGuessesTest, OneTokenIsNoPlace) {
  TokenGuesses guesses;
  EXPECT_TRUE(guesses.After(Tokens{5, 3, 7, 6, 3}, 4).token_ids.empty());
  EXPECT_TRUE(guesses.After(Tokens{3}, 4).token_ids.empty());
  EXPECT_TRUE(guesses.After(Tokens{}, 4).token_ids.empty());
  EXPECT_TRUE(guesses.After(Tokens{1, 2, 1, 2}, 0).token_ids.empty());
}

TEST(TokenGuessesTest, LookBackAsFarAsTheHistory) {
  TokenGuesses guesses;
  Tokens text = {1, 2, 3};
  const auto fill = [&](size_t size) {
    while (text.size() < size) text.push_back(100 + static_cast<int32_t>(text.size()));
  };
  fill(TokenGuesses::kHistory - 2);
  text.insert(text.end(), {1, 2});
  EXPECT_EQ(guesses.After(text, 1).token_ids, Tokens{3});
  text.resize(text.size() - 2);
  fill(TokenGuesses::kHistory - 1);
  text.insert(text.end(), {1, 2});
  EXPECT_TRUE(guesses.After(text, 1).token_ids.empty());
}

TEST(TokenGuessesTest, RightGuessesGrowAndWrongOnesBecomeRare) {
  const Tokens text = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 1, 2};
  TokenGuesses guesses;
  const size_t at_first = guesses.After(text, 8).token_ids.size();
  EXPECT_GE(at_first, 1u);
  for (int i = 0; i < 100; ++i) {
    const TokenGuesses::Guess guess = guesses.After(text, 8);
    guesses.OnDrawn(guess, guess.token_ids.size());
  }
  EXPECT_EQ(guesses.After(text, 8).token_ids, (Tokens{3, 4, 5, 6, 7, 8, 9, 10}));
  EXPECT_EQ(guesses.After(text, 3).token_ids, (Tokens{3, 4, 5})) << "no more than there is room";
  size_t num_guessed = 0;
  for (int i = 0; i < 300; ++i) {
    const TokenGuesses::Guess guess = guesses.After(text, 8);
    if (guess.token_ids.empty()) continue;
    guesses.OnDrawn(guess, 0);
    if (i >= 140) num_guessed += guess.token_ids.size();
  }
  EXPECT_EQ(num_guessed, 10u) << "one token at every sixteenth place";
}

}  // namespace
}  // namespace tandem
