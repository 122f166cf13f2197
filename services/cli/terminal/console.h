// Where a command reads and writes: the terminal, or strings in tests.
#ifndef TANDEM_SERVICES_CLI_TERMINAL_CONSOLE_H_
#define TANDEM_SERVICES_CLI_TERMINAL_CONSOLE_H_

#include <istream>
#include <ostream>

namespace tandem::cli {

// Results go to `out`. Everything else (legend, summary, progress, errors) goes to `err`, so that a
// pipe gets only results.
struct Console {
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
  bool out_is_terminal = false;
  bool err_is_terminal = false;
};

// The exit codes of `tandem`.
inline constexpr int kExitOk = 0;
inline constexpr int kExitServerError = 1;  // the server refused or failed, or could not be started
inline constexpr int kExitUsage = 2;        // the command line is not valid
inline constexpr int kExitInterrupted = 130;  // Ctrl-C; shells use the same code

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_TERMINAL_CONSOLE_H_
