// The log-probabilities of a choice, in the shape of completions.
#ifndef TANDEM_SERVICES_GATEWAY_API_ANSWERS_CHOICE_LOGPROBS_H_
#define TANDEM_SERVICES_GATEWAY_API_ANSWERS_CHOICE_LOGPROBS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tandem/v1/generate.pb.h"

namespace tandem::gateway {

// Collects the entries of tokens, in their order, as the four lists that the shape has.
class ChoiceLogprobs {
 public:
  // The text before the output, in which the prompt's tokens have their places.
  void SetEcho(std::string text);

  // The first token of the prompt, which has no log-probability.
  void AddStart(const v1::PromptStart& token);
  // The next token of the prompt. A token that is not in the text, such as one that the tokenizer
  // added, takes no place there.
  void AddPrompt(const v1::TokenLogprobs& token);
  // The next token of the output.
  void Add(const v1::TokenLogprobs& token);

  bool empty() const { return tokens_.empty(); }
  // Returns the object, and forgets its entries. Later offsets go on.
  std::string Take();

 private:
  void Append(const v1::TokenLogprobs& token, int64_t offset);
  // Returns the number of characters before a token of the prompt, and goes on after it.
  int64_t TakePlace(std::string_view bytes);

  std::string tokens_;
  std::string token_logprobs_;
  std::string top_logprobs_;
  std::string text_offset_;
  int64_t offset_ = 0;  // that of the next token of the output
  std::string echo_;
  size_t echo_place_ = 0;  // in bytes: where the prompt's next token is
  int64_t echo_offset_ = 0;
};

// Returns the number of characters (code points) that begin in the bytes.
int64_t CountCharacters(std::string_view bytes);

// Returns the number as JSON, which has no infinity.
std::string LogprobText(float logprob);

// Returns the text of a token, or "bytes:\x…" as OpenAI writes a token that is a part of a
// character. Otherwise several tokens would have one name.
std::string TokenName(const std::string& text, const std::string& bytes);

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_API_ANSWERS_CHOICE_LOGPROBS_H_
