// What `tandem bench` is told.
#ifndef TANDEM_SERVICES_CLI_BENCH_BENCH_OPTIONS_H_
#define TANDEM_SERVICES_CLI_BENCH_BENCH_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "services/cli/bench/bench_report.h"
#include "services/cli/supervisor/server_session.h"
#include "services/cli/terminal/palette.h"
#include "services/cli/terminal/parsed.h"

namespace tandem::cli {

struct BenchOptions {
  SessionOptions session;
  std::string prompts;  // file, one prompt a line; empty: built in
  // kAutoDraftLength among them; 0 (plain decoding) is always measured.
  std::vector<int> draft_lengths = {0, 1, 2, 4, 6, 8};
  std::vector<std::string> modes = {"greedy", "sampled"};
  int pairs = 20;         // runs of each draft length, each beside one of plain decoding
  int max_tokens = 96;    // of each run; end of text is ignored
  float temperature = 1;  // of the mode `sampled`
  uint64_t seed = 1;      // of the first sampled run, then counted up
  std::string json;       // file; empty: none
  ColorMode color = ColorMode::kAuto;
};

// `arguments` are those after the command's name.
Parsed<BenchOptions> ParseBench(std::vector<std::string> arguments);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_BENCH_BENCH_OPTIONS_H_
