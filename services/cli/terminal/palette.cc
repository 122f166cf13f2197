#include "services/cli/terminal/palette.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_format.h"

namespace tandem::cli {

namespace {

std::string EncodeThreeBytes(unsigned code_point) {
  return {static_cast<char>(0xE0 | (code_point >> 12)),
          static_cast<char>(0x80 | ((code_point >> 6) & 0x3F)),
          static_cast<char>(0x80 | (code_point & 0x3F))};
}

}  // namespace

bool WantsColor(ColorMode mode, bool is_terminal) {
  if (mode != ColorMode::kAuto) return mode == ColorMode::kAlways;
  const char* no_color = std::getenv("NO_COLOR");
  if (no_color != nullptr && *no_color != '\0') return false;
  const char* term = std::getenv("TERM");
  return is_terminal && (term == nullptr || std::strcmp(term, "dumb") != 0);
}

std::string Palette::Wrap(const std::string& code, const std::string& text) const {
  if (!color_ || text.empty()) return text;
  return "\x1b[" + code + "m" + text + "\x1b[0m";
}

std::string Palette::Source(v1::TokenSource source, const std::string& text) const {
  switch (source) {
    case v1::TOKEN_SOURCE_ACCEPTED:
      return Wrap("32", text);
    case v1::TOKEN_SOURCE_RECOVERED:
      return Wrap("33", text);
    case v1::TOKEN_SOURCE_BONUS:
      return Wrap("36", text);
    default:
      return text;
  }
}

std::string Palette::Legend() const {
  if (!color_) return "";
  return Source(v1::TOKEN_SOURCE_ACCEPTED, "■ accepted") + "  " +
         Source(v1::TOKEN_SOURCE_RECOVERED, "■ recovered") + "  " +
         Source(v1::TOKEN_SOURCE_BONUS, "■ bonus") + "  ■ plain";
}

std::string Palette::Bar(double fraction, int width) const {
  static constexpr std::array<const char*, 8> kEighths = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  if (!std::isfinite(fraction)) fraction = 0;
  const int eighths = static_cast<int>(std::lround(std::clamp(fraction, 0.0, 1.0) * width * 8));
  std::string bar;
  for (int i = 0; i < eighths / 8; ++i) bar += "█";
  bar += kEighths[eighths % 8];
  const int used = (eighths + 7) / 8;
  return Wrap("32", bar) + std::string(width - used, ' ');
}

std::string FormatSeconds(double seconds) {
  if (seconds < 0.001) return absl::StrFormat("%.0f µs", seconds * 1e6);
  if (seconds < 1) return absl::StrFormat("%.1f ms", seconds * 1e3);
  return absl::StrFormat("%.2f s", seconds);
}

std::string VisibleText(const std::string& text) {
  std::string visible;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == 0x7F) {
      visible += EncodeThreeBytes(0x2421);
    } else if (byte < 0x20 && byte != '\n' && byte != '\t') {
      visible += EncodeThreeBytes(0x2400 + byte);
    } else if (byte == 0xC2 && i + 1 < text.size() &&
               static_cast<unsigned char>(text[i + 1]) < 0xA0) {
      // C1 controls, including 0x9B, start escape sequences too.
      visible += EncodeThreeBytes(0xFFFD);
      ++i;
    } else {
      visible += text[i];
    }
  }
  return visible;
}

}  // namespace tandem::cli
