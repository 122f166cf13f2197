// `tandem tokenize` and `tandem info`
#ifndef TANDEM_SERVICES_CLI_COMMANDS_INSPECT_COMMAND_H_
#define TANDEM_SERVICES_CLI_COMMANDS_INSPECT_COMMAND_H_

#include <string>
#include <vector>

#include "services/cli/supervisor/server_session.h"
#include "services/cli/terminal/console.h"
#include "services/cli/terminal/parsed.h"

namespace tandem::cli {

struct TokenizeOptions {
  SessionOptions session;
  std::string text;  // "-": standard input
  bool no_special_tokens = false;
  bool pieces = false;  // print one line per token, with its id and its text
};

struct InfoArguments {
  SessionOptions session;
};

// Prints the token ids of a text, separated by spaces. Returns the exit code.
int Tokenize(const TokenizeOptions& options, Console& console);

// Prints which models a server serves, and their limits. Returns the exit code.
int Info(const SessionOptions& options, Console& console);

// Both functions take the arguments after the command's name.
Parsed<TokenizeOptions> ParseTokenize(std::vector<std::string> arguments);
Parsed<InfoArguments> ParseInfo(std::vector<std::string> arguments);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_COMMANDS_INSPECT_COMMAND_H_
