// UTF-8 and the few Unicode properties that tokenizers ask about.
#ifndef TANDEM_COMMON_TOKENIZER_TEXT_UNICODE_H_
#define TANDEM_COMMON_TOKENIZER_TEXT_UNICODE_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tandem {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// The unit at the beginning of bytes. An invalid unit is a maximal subpart (Unicode 15.0, section
// 3.9, U+FFFD substitution): one U+FFFD for each unit is the result of Rust's and the web's
// decoders.
struct Utf8Unit {
  enum class Kind { kCharacter, kInvalid, kIncomplete };
  Kind kind;
  size_t length;  // in bytes; an incomplete unit has all the bytes that are left
};

// PRECOND: bytes is not empty.
Utf8Unit FirstUtf8Unit(std::string_view bytes);

// Returns the offset of the first byte that is not UTF-8, or nothing if all bytes are.
std::optional<size_t> FindInvalidUtf8(std::string_view bytes);

// Appends to `text` the characters that are certain of `incomplete` + `bytes`, and U+FFFD for each
// invalid unit; leaves in `incomplete` the character that has begun.
void AppendRepairedUtf8(std::string_view bytes, std::string& incomplete, std::string& text);

// Returns the character at `position` and moves `position` behind it. PRECOND: text is UTF-8,
// position < size.
char32_t NextCharacter(std::string_view text, size_t& position);
// Returns the character before `position` and moves `position` before it. PRECOND: text is UTF-8,
// position > 0.
char32_t PreviousCharacter(std::string_view text, size_t& position);
void AppendCharacter(char32_t character, std::string& text);

bool IsWhiteSpace(char32_t character);  // the property White_Space

// Rust's \w: alphabetic characters, marks, decimal digits, connectors and joiners.
bool IsWordCharacter(char32_t character);

// ASCII punctuation and symbols, and the general categories P* of Unicode 8.0 (unicode_versions.h).
bool IsPunctuation(char32_t character);

// Number of bytes of white space at the beginning or the end of text.
size_t LeadingWhiteSpace(std::string_view text);
size_t TrailingWhiteSpace(std::string_view text);

bool IsAscii(std::string_view text);

enum class NormalizationForm { kNfc, kNfd, kNfkc, kNfkd };

// Unicode normalization (UAX #15) of Unicode 9.0 (unicode_versions.h), in O(n log n) however many
// marks follow each other. PRECOND: text is UTF-8.
std::string NormalizeUnicode(std::string_view text, NormalizationForm form);

// Lowercases each character without its context: U+0130 becomes two characters, and a final sigma
// is not treated specially.
std::string LowercaseUnicode(std::string_view text);

}  // namespace tandem

#endif  // TANDEM_COMMON_TOKENIZER_TEXT_UNICODE_H_
