// Colours and bars for a terminal; the plain text when colours are off.
#ifndef TANDEM_SERVICES_CLI_TERMINAL_PALETTE_H_
#define TANDEM_SERVICES_CLI_TERMINAL_PALETTE_H_

#include <string>

#include "tandem/v1/generate.pb.h"

namespace tandem::cli {

enum class ColorMode { kAuto, kAlways, kNever };

// kAuto: only on a terminal, and not when NO_COLOR is set (https://no-color.org) or TERM is "dumb".
bool WantsColor(ColorMode mode, bool is_terminal);

class Palette {
 public:
  explicit Palette(bool color) : color_(color) {}

  bool color() const { return color_; }

  // Text of a token, in the colour of how it came about. Plainly decoded text stays as it is.
  std::string Source(v1::TokenSource source, const std::string& text) const;
  std::string Bold(const std::string& text) const { return Wrap("1", text); }
  std::string Dim(const std::string& text) const { return Wrap("2", text); }
  std::string Good(const std::string& text) const { return Wrap("32", text); }
  std::string Bad(const std::string& text) const { return Wrap("31", text); }

  // "accepted recovered bonus plain", each in its colour. Empty without colours.
  std::string Legend() const;

  // `fraction` of `width` columns filled, in eighths of a column; the rest is blank.
  std::string Bar(double fraction, int width) const;

 private:
  std::string Wrap(const std::string& code, const std::string& text) const;

  bool color_;
};

// A duration in the unit that reads best: "850 µs", "12.3 ms", "1.24 s".
std::string FormatSeconds(double seconds);

// Model output as a terminal may see it: control characters other than newline and tab become
// visible pictures (U+2400 …), so that a model cannot move the cursor or retitle the window. `text`
// is UTF-8.
std::string VisibleText(const std::string& text);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_TERMINAL_PALETTE_H_
