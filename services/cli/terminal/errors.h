// Reports a command's failure.
#ifndef TANDEM_SERVICES_CLI_TERMINAL_ERRORS_H_
#define TANDEM_SERVICES_CLI_TERMINAL_ERRORS_H_

#include "absl/status/status.h"
#include "services/cli/terminal/console.h"

namespace tandem::cli {

// Returns the exit code for an error that this process found: kExitUsage for INVALID_ARGUMENT,
// kExitInterrupted for CANCELLED, and kExitServerError for the rest. `status` must not be OK.
int ExitCode(const absl::Status& status);

// Prints one line, "error: …", and returns the exit code.
int PrintError(const absl::Status& status, Console& console);

// Does the same for an error that a server answered. The line names the status code, and the exit
// code is never kExitUsage.
int PrintServerError(const absl::Status& status, Console& console);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_TERMINAL_ERRORS_H_
