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
  std::string admin = "127.0.0.1:9464";  // admin address of the router
  std::string connect;                   // a router that is asked for its admin address; or empty
  ClientSecurityOptions security;
  double interval = 1;  // seconds
  bool once = false;    // print one frame, without moving the cursor
  ColorMode color = ColorMode::kAuto;
};

// Shows what a router does, with a new frame after every interval, until Ctrl-C. Prints one frame
// only if the output is not a terminal. Returns the exit code.
int Top(const TopOptions& options, Console& console);

// `arguments` are the arguments after the command's name.
Parsed<TopOptions> ParseTop(std::vector<std::string> arguments);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_COMMANDS_TOP_COMMAND_H_
