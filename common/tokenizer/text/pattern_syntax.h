// Translates a pattern of tokenizer.json from Oniguruma's syntax, which Hugging Face's tokenizers
// compile, to PCRE2's.
#ifndef TANDEM_COMMON_TOKENIZER_TEXT_PATTERN_SYNTAX_H_
#define TANDEM_COMMON_TOKENIZER_TEXT_PATTERN_SYNTAX_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tandem {

// The two agree on most of what tokenizers use. Where they differ the translation says what
// Oniguruma (Ruby syntax, UTF-8) means: \s is White_Space (PCRE2's has U+180E too), \w has marks
// and more, \h a hexadecimal digit, \p{Han} the script (PCRE2 takes script extensions), {1,3}+ a
// repeated repetition (PCRE2: possessive), {,3} is {0,3}.
// To be compiled with UTF, UCP and MULTILINE, newline LF: ^ and $ match at lines.
// Errors: what only one of the two knows, or what they read differently beyond that, is refused by
// name.
absl::StatusOr<std::string> TranslatePattern(std::string_view oniguruma);

}  // namespace tandem

#endif  // TANDEM_COMMON_TOKENIZER_TEXT_PATTERN_SYNTAX_H_
