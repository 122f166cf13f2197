// How a command says that it failed.
#ifndef TANDEM_SERVICES_CLI_TERMINAL_ERRORS_H_
#define TANDEM_SERVICES_CLI_TERMINAL_ERRORS_H_

#include "absl/status/status.h"
#include "services/cli/terminal/console.h"

namespace tandem::cli {

// For what this process found wrong: kExitUsage for INVALID_ARGUMENT, kExitInterrupted for CANCELLED,
// else kExitServerError. `status` must not be OK.
int ExitCode(const absl::Status& status);

// Prints one line, "error: …", and returns the exit code for it.
int PrintError(const absl::Status& status, Console& console);

// The same for what a server answered: the line names the status code, and the exit code is never
// kExitUsage.
int PrintServerError(const absl::Status& status, Console& console);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_TERMINAL_ERRORS_H_
