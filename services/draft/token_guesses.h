// Guesses of what the draft model will draw next, so that one pass can compute several of its rows.
#ifndef TANDEM_SERVICES_DRAFT_TOKEN_GUESSES_H_
#define TANDEM_SERVICES_DRAFT_TOKEN_GUESSES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tandem {

// Copies what followed an earlier place of the text (prompt lookup: Saxena 2023). A guess decides
// only which rows are computed early: tokens are drawn from the same rows with the same keys, so
// drafts and their distributions do not depend on guesses. How often guesses were right is counted
// over all requests.
class TokenGuesses {
 public:
  // Newest tokens of a text that are looked at.
  static constexpr size_t kHistory = 512;

  // What is guessed after a text.
  struct Guess {
    std::vector<int32_t> token_ids;  // empty: nothing was found, or no guess is expected to pay
    size_t order = 0;                // number of tokens before it that agree with the earlier place
  };
  // Guesses at most `most` tokens after `text`. Only as many are returned as are likely to save
  // more than their rows cost; now and then one more, to learn how likely it is.
  Guess After(std::span<const int32_t> text, size_t most);
  // The first `num_right` tokens of a guess were drawn. The next one was not, unless `num_right` is
  // their number.
  void OnDrawn(const Guess& guess, size_t num_right);

 private:
  static constexpr size_t kLeastOrder = 2;
  static constexpr size_t kMostOrder = 4;

  // By order: how likely a guessed token is right if those before it were.
  std::array<double, kMostOrder + 1> chances_ = {0, 0, 0.5, 0.6, 0.7};
  uint32_t num_passed_over_ = 0;  // places in a row at which a guess was not expected to pay
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_DRAFT_TOKEN_GUESSES_H_
