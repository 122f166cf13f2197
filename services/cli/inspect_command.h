// `tandem tokenize` and `tandem info`
#ifndef TANDEM_SERVICES_CLI_INSPECT_COMMAND_H_
#define TANDEM_SERVICES_CLI_INSPECT_COMMAND_H_

#include <string>

#include "services/cli/console.h"
#include "services/cli/server_session.h"

namespace tandem::cli {

struct TokenizeOptions {
  SessionOptions session;
  std::string text;  // "-": standard input
  bool no_special_tokens = false;
  bool pieces = false;  // one line a token: its id and its text
};

// Prints the token ids of a text, separated by spaces. Returns the exit code.
int Tokenize(const TokenizeOptions& options, Console& console);

// Prints what a server serves. Returns the exit code.
int Info(const SessionOptions& options, Console& console);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_INSPECT_COMMAND_H_
