// The size of the terminal that standard output goes to.
#ifndef TANDEM_SERVICES_CLI_TERMINAL_TERMINAL_SIZE_H_
#define TANDEM_SERVICES_CLI_TERMINAL_TERMINAL_SIZE_H_

#include <sys/ioctl.h>
#include <unistd.h>

namespace tandem::cli {

inline constexpr int kDefaultWidth = 80;
inline constexpr int kDefaultHeight = 24;

struct TerminalSize {
  int width = kDefaultWidth;    // columns
  int height = kDefaultHeight;  // lines
};

// Returns the defaults if the size is not known.
inline TerminalSize GetTerminalSize() {
  winsize size{};
  TerminalSize result;
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return result;
  if (size.ws_col != 0) result.width = size.ws_col;
  if (size.ws_row != 0) result.height = size.ws_row;
  return result;
}

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_TERMINAL_TERMINAL_SIZE_H_
