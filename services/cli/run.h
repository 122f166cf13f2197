// The whole of `tandem` but for the process around it.
#ifndef TANDEM_SERVICES_CLI_RUN_H_
#define TANDEM_SERVICES_CLI_RUN_H_

#include <string>
#include <vector>

#include "services/cli/terminal/console.h"

namespace tandem::cli {

// `arguments` without the program's name. Returns the exit code.
int Run(const std::vector<std::string>& arguments, Console& console);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_RUN_H_
