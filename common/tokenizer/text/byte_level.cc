#include "common/tokenizer/text/byte_level.h"

#include <array>
#include <cstddef>
#include <cstdint>

#include "common/tokenizer/text/unicode.h"

namespace tandem {
namespace {

constexpr size_t kNumBytes = 256;
constexpr size_t kFirstShifted = 0x100;

constexpr bool StandsForItself(size_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

// Makes a table: character_of[byte].
constexpr std::array<char16_t, kNumBytes> MakeCharacters() {
  std::array<char16_t, kNumBytes> characters{};
  size_t shifted = kFirstShifted;
  for (size_t byte = 0; byte < kNumBytes; ++byte) {
    characters[byte] = static_cast<char16_t>(StandsForItself(byte) ? byte : shifted++);
  }
  return characters;
}
constexpr std::array<char16_t, kNumBytes> kCharacters = MakeCharacters();
constexpr int16_t kNoByte = -1;
constexpr size_t kNumCharacters = kFirstShifted + 68;  // 68 bytes are written as other characters

constexpr std::array<int16_t, kNumCharacters> MakeBytes() {
  std::array<int16_t, kNumCharacters> bytes{};
  for (int16_t& byte : bytes) byte = kNoByte;
  for (size_t byte = 0; byte < kNumBytes; ++byte) {
    bytes[kCharacters[byte]] = static_cast<int16_t>(byte);
  }
  return bytes;
}
constexpr std::array<int16_t, kNumCharacters> kBytes = MakeBytes();

}  // namespace

std::string ToByteLevel(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char byte : bytes)
    AppendCharacter(kCharacters[static_cast<unsigned char>(byte)], text);
  return text;
}

std::string FromByteLevel(std::string_view text) {
  std::string bytes;
  for (size_t i = 0; i < text.size();) {
    const char32_t character = NextCharacter(text, i);
    const int16_t byte = character < kNumCharacters ? kBytes[character] : kNoByte;
    if (byte == kNoByte) return std::string(text);
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

}  // namespace tandem
