// What `tandem bench serve` is told.
#ifndef TANDEM_SERVICES_CLI_BENCH_SERVE_BENCH_SERVE_OPTIONS_H_
#define TANDEM_SERVICES_CLI_BENCH_SERVE_BENCH_SERVE_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "services/cli/bench/serve/length_distribution.h"
#include "services/cli/bench/serve/process_usage.h"
#include "services/cli/supervisor/server_session.h"
#include "services/cli/terminal/palette.h"
#include "services/cli/terminal/parsed.h"

namespace tandem::cli {

struct BenchServeOptions {
  SessionOptions session;
  // Steps. `rates`, when there are any, take the place of `clients`.
  std::vector<int> clients = {1, 2, 4, 8, 16, 32};  // each sends a request when its last one ended
  std::vector<double> rates;                        // requests a second, whatever comes back
  int requests =
      0;  // of each client in a run, or of the run in an open loop; 0: by `seconds`, or four
  double seconds = 0;          // of a run; 0: by `requests`
  double warm_up_seconds = 0;  // of a run by seconds, before them
  int connections = 1;         // at least
  int pairs = 3;               // runs of each step, mode and kind of drafting
  double most_stolen = 1;  // share of the processor time in a run; a pair with more is run again
  std::function<CpuSeconds()> read_cpu = ReadCpuSeconds;
  std::vector<std::string> modes = {"greedy"};          // greedy, sampled, reproducible
  std::vector<std::string> drafting = {"auto", "off"};  // on, off, auto
  int draft_length = 4;                                 // of `on`
  // Requests.
  std::string prompts;                              // file, one prompt a line; empty: built in
  std::optional<LengthDistribution> prompt_length;  // none: the prompts as they are
  LengthDistribution output_length = LengthDistribution::Fixed(64);
  int shared_prefix = 0;       // tokens that all prompts begin with
  double cancel_fraction = 0;  // of the requests, each after a part of its output
  float temperature = 1;       // of the modes that sample
  uint64_t seed = 1;
  // Output.
  std::string json;  // file; empty: none
  ColorMode color = ColorMode::kAuto;
};

// `arguments` are those after the command's name.
Parsed<BenchServeOptions> ParseBenchServe(std::vector<std::string> arguments);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_BENCH_SERVE_BENCH_SERVE_OPTIONS_H_
