// The result of parsing a command line.
#ifndef TANDEM_SERVICES_CLI_TERMINAL_PARSED_H_
#define TANDEM_SERVICES_CLI_TERMINAL_PARSED_H_

#include <string>
#include <variant>

namespace tandem::cli {

// The command line asks for help or for the version.
struct ShowText {
  std::string text;
};

// The command line is not valid. `message` says what is wrong and how to get help.
struct UsageError {
  std::string message;
};

// The options of one command, or the text that is printed instead.
template <typename Options>
using Parsed = std::variant<ShowText, UsageError, Options>;

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_TERMINAL_PARSED_H_
