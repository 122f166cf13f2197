// `tandem generate`
#ifndef TANDEM_SERVICES_CLI_COMMANDS_GENERATE_COMMAND_H_
#define TANDEM_SERVICES_CLI_COMMANDS_GENERATE_COMMAND_H_

#include "services/cli/commands/generate_options.h"
#include "services/cli/terminal/console.h"

namespace tandem::cli {

// Streams the completion of a prompt to `console.out` and a summary to `console.err`. Returns the
// exit code.
int Generate(const GenerateOptions& options, Console& console);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_COMMANDS_GENERATE_COMMAND_H_
