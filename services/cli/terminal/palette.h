// Colors and bars for a terminal. Without colors, texts stay plain.
#ifndef TANDEM_SERVICES_CLI_TERMINAL_PALETTE_H_
#define TANDEM_SERVICES_CLI_TERMINAL_PALETTE_H_

#include <string>

#include "tandem/v1/generate.pb.h"

namespace tandem::cli {

enum class ColorMode { kAuto, kAlways, kNever };

// kAuto gives color only on a terminal, and not if NO_COLOR is set (https://no-color.org) or TERM
// is "dumb".
bool WantsColor(ColorMode mode, bool is_terminal);

class Palette {
 public:
  explicit Palette(bool color) : color_(color) {}

  bool color() const { return color_; }

  // Colors the text of a token by its source. Plainly decoded text stays as it is.
  std::string Source(v1::TokenSource source, const std::string& text) const;
  std::string Bold(const std::string& text) const { return Wrap("1", text); }
  std::string Dim(const std::string& text) const { return Wrap("2", text); }
  std::string Good(const std::string& text) const { return Wrap("32", text); }
  std::string Bad(const std::string& text) const { return Wrap("31", text); }

  // Returns "accepted recovered bonus plain", each word in its color. Empty without colors.
  std::string Legend() const;

  // Returns `width` columns, of which `fraction` is filled, in eighths of a column. The rest is
  // blank.
  std::string Bar(double fraction, int width) const;

 private:
  std::string Wrap(const std::string& code, const std::string& text) const;

  bool color_;
};

// Returns a duration in the unit that is easiest to read: "850 µs", "12.3 ms", "1.24 s".
std::string FormatSeconds(double seconds);

// Returns model output that is safe for a terminal. Control characters except newline and tab
// become visible pictures (U+2400 …), so that a model cannot move the cursor or change the window's
// title. `text` is UTF-8.
std::string VisibleText(const std::string& text);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_TERMINAL_PALETTE_H_
