// UTF-8, and the few Unicode properties that tokenizers use.
#ifndef TANDEM_COMMON_TOKENIZER_TEXT_UNICODE_H_
#define TANDEM_COMMON_TOKENIZER_TEXT_UNICODE_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tandem {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// The unit at the beginning of some bytes. An invalid unit is a maximal subpart (Unicode 15.0,
// section 3.9, U+FFFD substitution). Decoders of Rust and of the web replace each such unit by one
// U+FFFD.
struct Utf8Unit {
  enum class Kind { kCharacter, kInvalid, kIncomplete };
  Kind kind;
  size_t length;  // in bytes; an incomplete unit has all the remaining bytes
};

// PRECOND: bytes is not empty.
Utf8Unit FirstUtf8Unit(std::string_view bytes);

// Returns the offset of the first byte that is not UTF-8, or nothing if all bytes are.
std::optional<size_t> FindInvalidUtf8(std::string_view bytes);

// Appends to `text` the characters of `incomplete` + `bytes` that are certain, and U+FFFD for each
// invalid unit. Leaves the beginning of the last character in `incomplete`.
void AppendRepairedUtf8(std::string_view bytes, std::string& incomplete, std::string& text);

// Returns the character at `position` and moves `position` to the end of the character. PRECOND:
// text is UTF-8, position < size.
char32_t NextCharacter(std::string_view text, size_t& position);
// Returns the character before `position` and moves `position` to its beginning. PRECOND: text is
// UTF-8, position > 0.
char32_t PreviousCharacter(std::string_view text, size_t& position);
void AppendCharacter(char32_t character, std::string& text);

bool IsWhiteSpace(char32_t character);  // the property White_Space

// Rust's \w: alphabetic characters, marks, decimal digits, connectors and joiners.
bool IsWordCharacter(char32_t character);

// ASCII punctuation and symbols, and the general categories P* of Unicode 8.0 (unicode_versions.h).
bool IsPunctuation(char32_t character);

// Return the number of bytes of white space at the beginning or at the end of text.
size_t LeadingWhiteSpace(std::string_view text);
size_t TrailingWhiteSpace(std::string_view text);

bool IsAscii(std::string_view text);

enum class NormalizationForm { kNfc, kNfd, kNfkc, kNfkd };

// Applies Unicode normalization (UAX #15) of Unicode 9.0 (unicode_versions.h), in O(n log n) for
// any number of consecutive marks. PRECOND: text is UTF-8.
std::string NormalizeUnicode(std::string_view text, NormalizationForm form);

// Lowercases each character without looking at its context. U+0130 becomes two characters, and a
// final sigma has no special rule.
std::string LowercaseUnicode(std::string_view text);

}  // namespace tandem

#endif  // TANDEM_COMMON_TOKENIZER_TEXT_UNICODE_H_
