// `tandem serve`
#ifndef TANDEM_SERVICES_CLI_COMMANDS_SERVE_COMMAND_H_
#define TANDEM_SERVICES_CLI_COMMANDS_SERVE_COMMAND_H_

#include "services/cli/supervisor/server_options.h"
#include "services/cli/terminal/console.h"
#include "services/cli/terminal/palette.h"

namespace tandem::cli {

// Serves until SIGINT, SIGTERM or SIGHUP. A second signal kills at once. Prints `ready: ADDRESS` to
// `console.out` when the server is ready, and everything else to `console.err`. Returns the exit
// code, which is 0 after a clean stop.
int Serve(const ServerOptions& options, ColorMode color, Console& console);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_COMMANDS_SERVE_COMMAND_H_
