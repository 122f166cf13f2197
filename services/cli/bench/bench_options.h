// The options of `tandem bench`.
#ifndef TANDEM_SERVICES_CLI_BENCH_BENCH_OPTIONS_H_
#define TANDEM_SERVICES_CLI_BENCH_BENCH_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "services/cli/bench/bench_report.h"
#include "services/cli/supervisor/server_session.h"
#include "services/cli/terminal/palette.h"
#include "services/cli/terminal/parsed.h"

namespace tandem::cli {

struct BenchOptions {
  SessionOptions session;
  std::string prompts;  // a file with one prompt per line; empty: the built-in prompts
  // Draft lengths to measure, in addition to 0 (plain decoding). May hold kAutoDraftLength.
  std::vector<int> draft_lengths = {0, 1, 2, 4, 6, 8};
  // Largest numbers of tokens of a tree. Each draft length is measured with each of them. Empty:
  // the requests do not limit it.
  std::vector<int> max_tree_nodes;
  // Drafters that are compared; "auto" is the server's choice, and "all" every drafter it has, or
  // can have if its heads can be swapped.
  std::vector<std::string> drafters;  // empty: the server's choice alone
  std::vector<std::string> modes = {"greedy", "sampled"};
  int pairs = 20;         // number of pairs: a run of each draft length and a run of plain decoding
  int max_tokens = 96;    // length of each run; the end-of-text token is ignored
  float temperature = 1;  // temperature in the mode `sampled`
  // Temperature of the draft model in the mode `sampled`; none: that of the request.
  std::optional<float> draft_temperature;
  uint64_t seed = 1;  // seed of the first sampled run; each further run adds one
  std::string json;   // file for the results; empty: none
  ColorMode color = ColorMode::kAuto;

  // Returns the kinds of heads that --drafters names, each once.
  std::vector<std::string> KindsOfHeads() const;
  // Whether --drafters asks for all heads of the server.
  bool compares_all_heads() const;
};

// `arguments` are the arguments after the command's name.
Parsed<BenchOptions> ParseBench(std::vector<std::string> arguments);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_BENCH_BENCH_OPTIONS_H_
