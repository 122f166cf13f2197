// Makes text that somebody else wrote safe for our messages and log lines.
#ifndef TANDEM_COMMON_PEER_TEXT_H_
#define TANDEM_COMMON_PEER_TEXT_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace tandem {

// Largest part of a client's string that an error about the string repeats.
inline constexpr size_t kMaxQuotedBytes = 64;

// Writes control bytes as \n or \x1b and keeps the rest. A reader of lines, or a terminal, then
// never shows a line that nobody wrote.
inline std::string EscapeControls(std::string_view text) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string escaped;
  escaped.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) {
      escaped += c;
    } else if (c == '\n') {
      escaped += "\\n";
    } else {
      escaped += "\\x";
      escaped += kDigits[byte >> 4];
      escaped += kDigits[byte & 0xf];
    }
  }
  return escaped;
}

// Returns at most `limit` bytes of the text. No character of UTF-8 is cut in two.
inline std::string_view CutText(std::string_view text, size_t limit) {
  if (text.size() <= limit) return text;
  const auto is_inside = [&](size_t at) {
    return (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80;
  };
  size_t end = limit;
  while (end > 0 && limit - end < 3 && is_inside(end)) --end;
  return text.substr(0, end);
}

// The same, with a note if something was left out: `text… (1234 bytes)`.
inline std::string Shortened(std::string_view text, size_t limit) {
  const std::string_view cut = CutText(text, limit);
  std::string shortened(cut);
  if (cut.size() == text.size()) return shortened;
  shortened += "… (";
  shortened += std::to_string(text.size());
  return shortened += " bytes)";
}

// Quotes a client's string for an error: "text", or "text…" (1234 bytes).
inline std::string QuotedShort(std::string_view text) {
  const std::string_view cut = CutText(text, kMaxQuotedBytes);
  std::string inside;
  for (const char c : cut) {
    if (c == '"' || c == '\\') inside += '\\';
    inside += c;
  }
  std::string quoted;
  quoted += '"';
  quoted += EscapeControls(inside);
  if (cut.size() == text.size()) return quoted += '"';
  quoted += "…\" (";
  quoted += std::to_string(text.size());
  return quoted += " bytes)";
}

}  // namespace tandem

#endif  // TANDEM_COMMON_PEER_TEXT_H_
