// Translates a pattern of tokenizer.json from Oniguruma's syntax, which Hugging Face's tokenizers
// compile, to PCRE2's.
#ifndef TANDEM_COMMON_TOKENIZER_TEXT_PATTERN_SYNTAX_H_
#define TANDEM_COMMON_TOKENIZER_TEXT_PATTERN_SYNTAX_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tandem {

// Both syntaxes agree on most constructs that tokenizers use. Where they differ, the translation
// has Oniguruma's meaning (Ruby syntax, UTF-8). \s is White_Space (PCRE2's also has U+180E). \w
// includes marks and more. \h is a hexadecimal digit. \p{Han} is the script (PCRE2 uses script
// extensions). {1,3}+ is a repeated repetition (possessive in PCRE2). {,3} is {0,3}.
// Compile the result with UTF, UCP and MULTILINE, and newline LF: ^ and $ match at lines.
// Errors name a construct that only one syntax has, or that they read differently beyond these
// cases. Such constructs are refused.
absl::StatusOr<std::string> TranslatePattern(std::string_view oniguruma);

}  // namespace tandem

#endif  // TANDEM_COMMON_TOKENIZER_TEXT_PATTERN_SYNTAX_H_
