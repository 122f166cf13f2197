// The options of `tandem serve`.
#ifndef TANDEM_SERVICES_CLI_COMMANDS_SERVE_OPTIONS_H_
#define TANDEM_SERVICES_CLI_COMMANDS_SERVE_OPTIONS_H_

#include <string>
#include <vector>

#include "services/cli/supervisor/server_options.h"
#include "services/cli/terminal/palette.h"
#include "services/cli/terminal/parsed.h"

namespace tandem::cli {

struct ServeArguments {
  ServerOptions server;
  ColorMode color = ColorMode::kAuto;
};

// `arguments` are the arguments after the command's name.
Parsed<ServeArguments> ParseServe(std::vector<std::string> arguments);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_COMMANDS_SERVE_OPTIONS_H_
