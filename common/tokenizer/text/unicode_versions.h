// Hugging Face's tokenizers consist of libraries that know different versions of Unicode, and so
// does Tandem. Token ids depend on the properties of characters, so this file makes up for the
// differences. They concern only characters that were assigned since 2016.
#ifndef TANDEM_COMMON_TOKENIZER_TEXT_UNICODE_VERSIONS_H_
#define TANDEM_COMMON_TOKENIZER_TEXT_UNICODE_VERSIONS_H_

#include <optional>
#include <string>
#include <string_view>

namespace tandem {

// Patterns: Oniguruma 6.9.10 knows Unicode 16.0, PCRE2 10.42 Unicode 14.0. A character that 14.0
// does not know, or that has another general category there, becomes one that it knows: of the
// category that 16.0 gives, as long in UTF-8, of the same script where that is Han, Hiragana or
// Katakana. Any other stays as it is.
char32_t AsKnownSinceUnicode14(char32_t character);

// Changes the whole text in this way. Returns nothing if it has no such character. Offsets stay
// what they are. PRECOND: text is UTF-8.
std::optional<std::string> AsKnownSinceUnicode14(std::string_view text);

// Punctuation: the Rust library that decides knows Unicode 8.0. What came until 16.0.
bool IsLaterPunctuation(char32_t character);

// Lowercase: Rust knows Unicode 17.0, utf8proc 2.8 Unicode 15.0. What came between.
std::optional<char32_t> LaterLowercase(char32_t character);

// Normalization: the Rust library that decides knows Unicode 9.0. True for characters that came
// later and have a decomposition, a combining class or a composition: to that library they have
// none.
bool IsUnknownToNormalization(char32_t character);

}  // namespace tandem

#endif  // TANDEM_COMMON_TOKENIZER_TEXT_UNICODE_VERSIONS_H_
