// `tandem top`
#ifndef TANDEM_SERVICES_CLI_COMMANDS_TOP_COMMAND_H_
#define TANDEM_SERVICES_CLI_COMMANDS_TOP_COMMAND_H_

#include <string>
#include <vector>

#include "services/cli/client/client_security.h"
#include "services/cli/terminal/console.h"
#include "services/cli/terminal/palette.h"
#include "services/cli/terminal/parsed.h"

namespace tandem::cli {

struct TopOptions {
  std::string admin = "127.0.0.1:9464";  // of the router
  ClientSecurityOptions security;
  double interval = 1;  // seconds
  bool once = false;    // one frame, without moving the cursor
  ColorMode color = ColorMode::kAuto;
};

// Shows what a router does, anew every interval, until Ctrl-C; once where the output is no terminal.
// Returns the exit code.
int Top(const TopOptions& options, Console& console);

// `arguments` are those after the command's name.
Parsed<TopOptions> ParseTop(std::vector<std::string> arguments);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_COMMANDS_TOP_COMMAND_H_
