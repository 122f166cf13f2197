// Where a command reads and writes: the terminal, or strings in tests.
#ifndef TANDEM_SERVICES_CLI_TERMINAL_CONSOLE_H_
#define TANDEM_SERVICES_CLI_TERMINAL_CONSOLE_H_

#include <istream>
#include <ostream>

namespace tandem::cli {

// Results go to `out`, everything about them (legend, summary, progress, errors) to `err`, so that
// a pipe gets results alone.
struct Console {
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
  bool out_is_terminal = false;
  bool err_is_terminal = false;
};

// What `tandem` exits with.
inline constexpr int kExitOk = 0;
inline constexpr int kExitServerError = 1;    // the server, or starting it, said no
inline constexpr int kExitUsage = 2;          // the command line said something that cannot be
inline constexpr int kExitInterrupted = 130;  // Ctrl-C, as shells report it

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_TERMINAL_CONSOLE_H_
