// `tandem batch`
#ifndef TANDEM_SERVICES_CLI_BATCH_BATCH_COMMAND_H_
#define TANDEM_SERVICES_CLI_BATCH_BATCH_COMMAND_H_

#include "services/cli/batch/batch_options.h"
#include "services/cli/terminal/console.h"

namespace tandem::cli {

// Says on `console.err` how it goes. Returns the exit code: kExitServerError if a line failed.
int Batch(const BatchOptions& options, Console& console);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_BATCH_BATCH_COMMAND_H_
