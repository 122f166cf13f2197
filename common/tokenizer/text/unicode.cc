#include "common/tokenizer/text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <vector>

#include "common/tokenizer/text/unicode_versions.h"

namespace tandem {
namespace {

bool IsBetween(unsigned char byte, unsigned char low, unsigned char high) {
  return low <= byte && byte <= high;
}

utf8proc_propval_t CombiningClass(int32_t character) {
  if (IsUnknownToNormalization(static_cast<char32_t>(character))) return 0;
  return utf8proc_get_property(character)->combining_class;
}

// Sorts each run of marks by combining class, and keeps the order of equal marks (UAX #15, D109).
// utf8proc's own function takes quadratic time in the length of a run.
void OrderCanonically(std::vector<int32_t>& characters) {
  auto begin = characters.begin();
  while (begin != characters.end()) {
    begin = std::find_if(begin, characters.end(), [](int32_t c) { return CombiningClass(c) != 0; });
    auto end =
        std::find_if(begin, characters.end(), [](int32_t c) { return CombiningClass(c) == 0; });
    std::stable_sort(begin, end,
                     [](int32_t a, int32_t b) { return CombiningClass(a) < CombiningClass(b); });
    begin = end;
  }
}

// Composes canonically ordered characters in place. A character that normalization does not know is
// a starter that combines with nothing. utf8proc may treat it differently, so utf8proc gets only
// the text between such characters.
void Compose(std::vector<int32_t>& characters) {
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
  auto written = characters.begin();
  for (auto begin = characters.begin(); begin != characters.end();) {
    if (IsUnknownToNormalization(static_cast<char32_t>(*begin))) {
      *written++ = *begin++;
      continue;
    }
    const auto end = std::find_if(begin, characters.end(), [](int32_t c) {
      return IsUnknownToNormalization(static_cast<char32_t>(c));
    });
    const auto count = utf8proc_normalize_utf32(&*begin, end - begin, options);
    written = std::copy(begin, begin + count, written);
    begin = end;
  }
  characters.erase(written, characters.end());
}

}  // namespace

Utf8Unit FirstUtf8Unit(std::string_view bytes) {
  using Kind = Utf8Unit::Kind;
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {Kind::kCharacter, 1};
  if (!IsBetween(lead, 0xC2, 0xF4)) return {Kind::kInvalid, 1};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range excludes overlong forms, surrogates, and characters above U+10FFFF.
  unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {Kind::kIncomplete, i};
    if (!IsBetween(byte(i), low, high)) return {Kind::kInvalid, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Kind::kCharacter, length};
}

std::optional<size_t> FindInvalidUtf8(std::string_view bytes) {
  for (size_t i = 0; i < bytes.size();) {
    const Utf8Unit unit = FirstUtf8Unit(bytes.substr(i));
    if (unit.kind != Utf8Unit::Kind::kCharacter) return i;
    i += unit.length;
  }
  return std::nullopt;
}

void AppendRepairedUtf8(std::string_view bytes, std::string& incomplete, std::string& text) {
  incomplete += bytes;
  std::string_view rest = incomplete;
  while (!rest.empty()) {
    const Utf8Unit unit = FirstUtf8Unit(rest);
    if (unit.kind == Utf8Unit::Kind::kIncomplete) break;
    text += unit.kind == Utf8Unit::Kind::kCharacter ? rest.substr(0, unit.length)
                                                    : kReplacementCharacter;
    rest.remove_prefix(unit.length);
  }
  incomplete.erase(0, incomplete.size() - rest.size());
}

char32_t NextCharacter(std::string_view text, size_t& position) {
  const auto byte = [&] { return static_cast<unsigned char>(text[position++]); };
  const char32_t lead = byte();
  if (lead < 0x80) return lead;
  size_t continuations = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
  char32_t character = lead & (0x3F >> continuations);
  for (; continuations > 0; --continuations) character = character << 6 | (byte() & 0x3F);
  return character;
}

char32_t PreviousCharacter(std::string_view text, size_t& position) {
  do {
    --position;
  } while ((static_cast<unsigned char>(text[position]) & 0xC0) == 0x80);
  size_t start = position;
  return NextCharacter(text, start);
}

void AppendCharacter(char32_t character, std::string& text) {
  std::array<utf8proc_uint8_t, 4> bytes;
  const auto length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(character), bytes.data());
  text.append(bytes.begin(), bytes.begin() + length);
}

bool IsWhiteSpace(char32_t character) {
  switch (character) {
    case 0x20:
    case 0x85:
    case 0xA0:
    case 0x1680:
    case 0x2028:
    case 0x2029:
    case 0x202F:
    case 0x205F:
    case 0x3000:
      return true;
    default:
      return (character >= 0x09 && character <= 0x0D) ||
             (character >= 0x2000 && character <= 0x200A);
  }
}

bool IsWordCharacter(char32_t character) {
  const auto is_between = [&](char32_t first, char32_t last) {
    return first <= character && character <= last;
  };
  // Joiners, and the circled and squared letters, which are symbols but count as alphabetic.
  if (is_between(0x200C, 0x200D) || is_between(0x24B6, 0x24E9) || is_between(0x1F130, 0x1F149) ||
      is_between(0x1F150, 0x1F169) || is_between(0x1F170, 0x1F189)) {
    return true;
  }
  switch (utf8proc_category(static_cast<int32_t>(AsKnownSinceUnicode14(character)))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

bool IsPunctuation(char32_t character) {
  if (character < 0x80) return std::ispunct(static_cast<int>(character)) != 0;
  // Two characters that were punctuation in that version and have another category now.
  if (character == 0x166D || character == 0x111C9) return true;
  switch (utf8proc_category(static_cast<int32_t>(character))) {
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return !IsLaterPunctuation(character);
    default:
      return false;
  }
}

size_t LeadingWhiteSpace(std::string_view text) {
  size_t end = 0;
  for (size_t next = 0; end < text.size() && IsWhiteSpace(NextCharacter(text, next));) end = next;
  return end;
}

size_t TrailingWhiteSpace(std::string_view text) {
  size_t start = text.size();
  for (size_t next = start; start > 0 && IsWhiteSpace(PreviousCharacter(text, next));) start = next;
  return text.size() - start;
}

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

std::string NormalizeUnicode(std::string_view text, NormalizationForm form) {
  if (IsAscii(text)) return std::string(text);
  const bool compatible = form == NormalizationForm::kNfkc || form == NormalizationForm::kNfkd;
  const bool compose = form == NormalizationForm::kNfc || form == NormalizationForm::kNfkc;
  const auto options =
      static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0));

  std::vector<int32_t> characters;
  characters.reserve(text.size());
  // U+FDFA has the longest decomposition: 18 characters.
  std::array<utf8proc_int32_t, 32> parts;
  for (size_t i = 0; i < text.size();) {
    const auto character = static_cast<utf8proc_int32_t>(NextCharacter(text, i));
    if (IsUnknownToNormalization(static_cast<char32_t>(character))) {
      characters.push_back(character);
      continue;
    }
    const auto count =
        utf8proc_decompose_char(character, parts.data(), parts.size(), options, nullptr);
    characters.insert(characters.end(), parts.begin(), parts.begin() + count);
  }
  OrderCanonically(characters);
  if (compose) Compose(characters);
  std::string result;
  result.reserve(text.size());
  for (int32_t character : characters) AppendCharacter(static_cast<char32_t>(character), result);
  return result;
}

std::string LowercaseUnicode(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const char32_t character = NextCharacter(text, i);
    if (character == 0x130) {
      result += "i\xCC\x87";  // the only lowercase form with two characters: i and U+0307
      continue;
    }
    const std::optional<char32_t> later = LaterLowercase(character);
    AppendCharacter(
        later ? *later : static_cast<char32_t>(utf8proc_tolower(static_cast<int32_t>(character))),
        result);
  }
  return result;
}

}  // namespace tandem
