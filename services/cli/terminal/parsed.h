// What comes out of reading a command line.
#ifndef TANDEM_SERVICES_CLI_TERMINAL_PARSED_H_
#define TANDEM_SERVICES_CLI_TERMINAL_PARSED_H_

#include <string>
#include <variant>

namespace tandem::cli {

// Help or a version was asked for.
struct ShowText {
  std::string text;
};

// The command line cannot be understood; `message` says what is wrong and how to get help.
struct UsageError {
  std::string message;
};

// The options of one command, or what is printed in their place.
template <typename Options>
using Parsed = std::variant<ShowText, UsageError, Options>;

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_TERMINAL_PARSED_H_
