// `tandem bench`
#ifndef TANDEM_SERVICES_CLI_BENCH_BENCH_COMMAND_H_
#define TANDEM_SERVICES_CLI_BENCH_BENCH_COMMAND_H_

#include <string>

#include "services/cli/bench/bench_options.h"
#include "services/cli/terminal/console.h"

namespace tandem::cli {

// Measures. Shows progress on `console.err` and prints the table to `console.out`. Returns the exit
// code.
int Bench(BenchOptions options, const std::string& command_line, Console& console);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_BENCH_BENCH_COMMAND_H_
