// How a command says that it failed.
#ifndef TANDEM_SERVICES_CLI_ERRORS_H_
#define TANDEM_SERVICES_CLI_ERRORS_H_

#include "absl/status/status.h"
#include "services/cli/console.h"

namespace tandem::cli {

// Prints one line, "error: …", and returns the exit code for it: kExitUsage for INVALID_ARGUMENT
// from this process, kExitInterrupted for CANCELLED, else kExitServerError.
int PrintError(const absl::Status& status, Console& console);

// The same for what a server answered: the line names the status code, and the exit code is never
// kExitUsage.
int PrintServerError(const absl::Status& status, Console& console);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_ERRORS_H_
