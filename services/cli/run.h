// All of `tandem` except its main function.
#ifndef TANDEM_SERVICES_CLI_RUN_H_
#define TANDEM_SERVICES_CLI_RUN_H_

#include <string>
#include <vector>

#include "services/cli/terminal/console.h"

namespace tandem::cli {

// `arguments` do not include the program's name. Returns the exit code.
int Run(const std::vector<std::string>& arguments, Console& console);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_RUN_H_
