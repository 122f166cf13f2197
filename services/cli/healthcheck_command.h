// `tandem healthcheck`
#ifndef TANDEM_SERVICES_CLI_HEALTHCHECK_COMMAND_H_
#define TANDEM_SERVICES_CLI_HEALTHCHECK_COMMAND_H_

#include <string>

#include "services/cli/console.h"

namespace tandem::cli {

struct HealthcheckOptions {
  std::string admin = "127.0.0.1:9464";  // of the router, or of a worker
  bool tls = false;                      // what it speaks
};

// Asks /readyz once. Returns the exit code: kExitOk for ready.
int Healthcheck(const HealthcheckOptions& options, Console& console);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_HEALTHCHECK_COMMAND_H_
