// Differences between versions of Unicode. Hugging Face's tokenizers consist of libraries with
// different versions, and so does Tandem. Token ids depend on the properties of characters, so this
// file corrects the differences. They concern only characters that were assigned since 2016.
#ifndef TANDEM_COMMON_TOKENIZER_TEXT_UNICODE_VERSIONS_H_
#define TANDEM_COMMON_TOKENIZER_TEXT_UNICODE_VERSIONS_H_

#include <optional>
#include <string>
#include <string_view>

namespace tandem {

// For patterns: Oniguruma 6.9.10 has Unicode 16.0, and PCRE2 10.42 has Unicode 14.0. A character
// that 14.0 does not know, or knows with another general category, is replaced by one that 14.0
// knows. The replacement has the category of 16.0 and the same length in UTF-8. If the script is
// Han, Hiragana or Katakana, the replacement has the same script. Any other character stays
// unchanged.
char32_t AsKnownSinceUnicode14(char32_t character);

// Changes the whole text in this way. Returns nothing if the text has no such character. Offsets do
// not change. PRECOND: text is UTF-8.
std::optional<std::string> AsKnownSinceUnicode14(std::string_view text);

// For punctuation: the corresponding Rust library has Unicode 8.0. Returns true for later
// characters, up to 16.0.
bool IsLaterPunctuation(char32_t character);

// For lowercase: Rust has Unicode 17.0, and utf8proc 2.8 has Unicode 15.0. Returns the lowercase
// forms that are only in the former.
std::optional<char32_t> LaterLowercase(char32_t character);

// For normalization: the corresponding Rust library has Unicode 9.0. Returns true for later
// characters with a decomposition, a combining class or a composition. That library does not know
// these properties.
bool IsUnknownToNormalization(char32_t character);

}  // namespace tandem

#endif  // TANDEM_COMMON_TOKENIZER_TEXT_UNICODE_VERSIONS_H_
