// UTF-8 and the few Unicode properties that tokenizers ask about.
#ifndef TANDEM_COMMON_TOKENIZER_UNICODE_H_
#define TANDEM_COMMON_TOKENIZER_UNICODE_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tandem {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// What bytes begin with. An invalid unit is a maximal subpart (Unicode 15.0, section 3.9, U+FFFD
// substitution), so that one U+FFFD a unit is what Rust's and the web's decoders give.
struct Utf8Unit {
  enum class Kind { kCharacter, kInvalid, kIncomplete };
  Kind kind;
  size_t length;  // in bytes; of an incomplete unit all there is
};

// PRECOND: bytes is not empty.
Utf8Unit FirstUtf8Unit(std::string_view bytes);

// Offset of the first byte that is not UTF-8; nothing if all is.
std::optional<size_t> FindInvalidUtf8(std::string_view bytes);

// Appends to `text` the characters that are certain of `incomplete` + `bytes`, and U+FFFD for each
// invalid unit; leaves in `incomplete` the character that has begun.
void AppendRepairedUtf8(std::string_view bytes, std::string& incomplete, std::string& text);

// The character at `position`, which moves behind it. PRECOND: text is UTF-8, position < size.
char32_t NextCharacter(std::string_view text, size_t& position);
// The character before `position`, which moves before it. PRECOND: text is UTF-8, position > 0.
char32_t PreviousCharacter(std::string_view text, size_t& position);
void AppendCharacter(char32_t character, std::string& text);

bool IsWhiteSpace(char32_t character);  // the property White_Space

// Rust's \w: alphabetic characters, marks, decimal digits, connectors and joiners.
bool IsWordCharacter(char32_t character);

// ASCII punctuation and symbols, and the general categories P* of Unicode 8.0 (unicode_versions.h).
bool IsPunctuation(char32_t character);

// Bytes of white space that text begins or ends with.
size_t LeadingWhiteSpace(std::string_view text);
size_t TrailingWhiteSpace(std::string_view text);

bool IsAscii(std::string_view text);

enum class NormalizationForm { kNfc, kNfd, kNfkc, kNfkd };

// Unicode normalization (UAX #15) of Unicode 9.0 (unicode_versions.h), in O(n log n) however many
// marks follow each other. PRECOND: text is UTF-8.
std::string NormalizeUnicode(std::string_view text, NormalizationForm form);

// Each character's lowercase, without context: U+0130 becomes two characters, a final sigma is not
// told apart.
std::string LowercaseUnicode(std::string_view text);

}  // namespace tandem

#endif  // TANDEM_COMMON_TOKENIZER_UNICODE_H_
