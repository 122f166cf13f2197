// `tandem healthcheck`
#ifndef TANDEM_SERVICES_CLI_COMMANDS_HEALTHCHECK_COMMAND_H_
#define TANDEM_SERVICES_CLI_COMMANDS_HEALTHCHECK_COMMAND_H_

#include <string>
#include <vector>

#include "services/cli/terminal/console.h"
#include "services/cli/terminal/parsed.h"

namespace tandem::cli {

struct HealthcheckOptions {
  std::string admin = "127.0.0.1:9464";  // address of the router or of a worker
  bool tls = false;                      // true: the address speaks TLS
};

// Asks /readyz once. Returns the exit code, kExitOk if the process is ready.
int Healthcheck(const HealthcheckOptions& options, Console& console);

// `arguments` are the arguments after the command's name.
Parsed<HealthcheckOptions> ParseHealthcheck(std::vector<std::string> arguments);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_COMMANDS_HEALTHCHECK_COMMAND_H_
