// Turns arguments and TANDEM_* environment variables into a command.
#ifndef TANDEM_SERVICES_CLI_COMMAND_LINE_H_
#define TANDEM_SERVICES_CLI_COMMAND_LINE_H_

#include <string>
#include <variant>
#include <vector>

#include "services/cli/batch/batch_options.h"
#include "services/cli/bench/bench_options.h"
#include "services/cli/bench/serve/bench_serve_options.h"
#include "services/cli/chat/chat_options.h"
#include "services/cli/commands/generate_options.h"
#include "services/cli/commands/healthcheck_command.h"
#include "services/cli/commands/inspect_command.h"
#include "services/cli/commands/serve_options.h"
#include "services/cli/commands/top_command.h"
#include "services/cli/doctor/doctor_command.h"
#include "services/cli/drafter/drafter_command.h"
#include "services/cli/index/index_command.h"
#include "services/cli/terminal/parsed.h"

namespace tandem::cli {

using Command =
    std::variant<ShowText, UsageError, ServeArguments, GenerateOptions, ChatOptions, BatchOptions,
                 BenchOptions, BenchServeOptions, TokenizeOptions, InfoArguments, TopOptions,
                 HealthcheckOptions, DoctorOptions, IndexOptions, DrafterOptions>;

// `arguments` do not include the program's name. A missing option is taken from its environment
// variable if that variable is set and not empty (--top-p from TANDEM_TOP_P, --connect from
// TANDEM_ADDRESS). The server checks the ranges of sampling parameters, and its errors name the
// allowed values.
Command ParseCommandLine(std::vector<std::string> arguments);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_COMMAND_LINE_H_
