// `tandem bench serve`
#ifndef TANDEM_SERVICES_CLI_BENCH_SERVE_BENCH_SERVE_COMMAND_H_
#define TANDEM_SERVICES_CLI_BENCH_SERVE_BENCH_SERVE_COMMAND_H_

#include <string>

#include "services/cli/bench/serve/bench_serve_options.h"
#include "services/cli/terminal/console.h"

namespace tandem::cli {

// Measures. Shows progress on `console.err` and prints the table to `console.out`. After an
// interruption, the table has the part that was measured. Returns the exit code.
int BenchServe(BenchServeOptions options, const std::string& command_line, Console& console);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_BENCH_SERVE_BENCH_SERVE_COMMAND_H_
