// The options of `tandem bench serve`.
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
  // Steps. If `rates` is not empty, it replaces `clients`.
  // A client sends its next request when the last one has ended.
  std::vector<int> clients = {1, 2, 4, 8, 16, 32};
  std::vector<double> rates;  // requests per second, independent of the answers
  // Requests of each client in a run, or of the whole run in an open loop. 0: a run ends by
  // `seconds`, or after four requests if `seconds` is 0 too.
  int requests = 0;
  double seconds = 0;          // length of a run; 0: a run ends by `requests`
  double warm_up_seconds = 0;  // time before a run by `seconds` that does not count
  int connections = 1;         // smallest number of connections
  int pairs = 3;               // number of runs of each step, mode and kind of drafting
  // Largest stolen share of the processor time in a run; a pair with more is run again.
  double most_stolen = 1;
  std::function<CpuSeconds()> read_cpu = ReadCpuSeconds;
  std::vector<std::string> modes = {"greedy"};          // greedy, sampled, reproducible
  std::vector<std::string> drafting = {"auto", "off"};  // on, off, auto
  int draft_length = 4;                                 // draft length of `on`
  // Requests.
  std::string prompts;  // a file with one prompt per line; empty: the built-in prompts
  std::optional<LengthDistribution> prompt_length;  // none: the prompts keep their lengths
  LengthDistribution output_length = LengthDistribution::Fixed(64);
  int shared_prefix = 0;  // number of tokens that all prompts begin with
  // Share of requests that are canceled, each after a part of its output.
  double cancel_fraction = 0;
  float temperature = 1;  // temperature in the modes that sample
  uint64_t seed = 1;
  // Output.
  std::string json;  // file for the results; empty: none
  ColorMode color = ColorMode::kAuto;
};

// `arguments` are the arguments after the command's name.
Parsed<BenchServeOptions> ParseBenchServe(std::vector<std::string> arguments);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_BENCH_SERVE_BENCH_SERVE_OPTIONS_H_
