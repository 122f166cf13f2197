// From arguments and TANDEM_* environment variables to what is to be done.
#ifndef TANDEM_SERVICES_CLI_COMMAND_LINE_H_
#define TANDEM_SERVICES_CLI_COMMAND_LINE_H_

#include <string>
#include <variant>
#include <vector>

#include "services/cli/bench/bench_options.h"
#include "services/cli/bench/serve/bench_serve_options.h"
#include "services/cli/commands/generate_options.h"
#include "services/cli/commands/healthcheck_command.h"
#include "services/cli/commands/inspect_command.h"
#include "services/cli/commands/serve_options.h"
#include "services/cli/commands/top_command.h"
#include "services/cli/terminal/parsed.h"

namespace tandem::cli {

using Command =
    std::variant<ShowText, UsageError, ServeArguments, GenerateOptions, BenchOptions,
                 BenchServeOptions, TokenizeOptions, InfoArguments, TopOptions, HealthcheckOptions>;

// `arguments` without the program's name. An option that is absent is taken from its environment variable (--top-p from
// TANDEM_TOP_P, --connect from TANDEM_ADDRESS) when that is set and not empty.
// Ranges of sampling parameters are the server's to check: it knows them, and says what is allowed.
Command ParseCommandLine(std::vector<std::string> arguments);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_COMMAND_LINE_H_
