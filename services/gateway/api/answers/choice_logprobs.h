// The log-probabilities of a choice, in the shape of completions.
#ifndef TANDEM_SERVICES_GATEWAY_API_ANSWERS_CHOICE_LOGPROBS_H_
#define TANDEM_SERVICES_GATEWAY_API_ANSWERS_CHOICE_LOGPROBS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "tandem/v1/generate.pb.h"

namespace tandem::gateway {

// Collects the entries of tokens, in their order, as the four lists that the shape has.
class ChoiceLogprobs {
 public:
  // Offsets of tokens count from here: the number of characters before the output, with echo.
  void SetOffset(int64_t characters) { offset_ = characters; }

  void Add(const v1::TokenLogprobs& token);

  bool empty() const { return tokens_.empty(); }
  // Returns the object, and forgets its entries. Later offsets go on.
  std::string Take();

 private:
  std::string tokens_;
  std::string token_logprobs_;
  std::string top_logprobs_;
  std::string text_offset_;
  int64_t offset_ = 0;
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
