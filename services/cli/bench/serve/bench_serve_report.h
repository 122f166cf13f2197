// The results of a load test, as a table and as JSON.
#ifndef TANDEM_SERVICES_CLI_BENCH_SERVE_BENCH_SERVE_REPORT_H_
#define TANDEM_SERVICES_CLI_BENCH_SERVE_BENCH_SERVE_REPORT_H_

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "services/cli/bench/serve/bench_serve_load.h"
#include "services/cli/bench/serve/process_usage.h"
#include "services/cli/terminal/palette.h"
#include "tandem/v1/generate.pb.h"

namespace tandem::cli {

// The sums over all runs of one step, mode and kind of drafting.
struct ServeCell {
  int clients = 0;  // closed loop
  double rate = 0;  // open loop, if `clients` is 0
  std::string mode;
  std::string drafting;
  LoadResult result;
  CpuSeconds cpu;  // used during the runs
  int runs = 0;
  int set_aside = 0;           // runs whose pairs were run again; these runs do not count
  std::vector<double> ratios;  // tokens/s relative to drafting off in the same pair
};

struct ServeContext {
  v1::ServerInfo server;
  std::string hardware;
  std::string command_line;
  int cores = 1;
  // Weights that a token is multiplied with; unknown with --connect.
  std::optional<double> target_weights;
  bool interrupted = false;
};

// How busy the server was, in [0, 1]. The stages are shares of the time in which streams decode.
// The cores' numbers are shares of the time of all cores.
struct Utilization {
  double verify = 0;
  double draft = 0;
  double transfer = 0;
  double router = 0;  // the router's own work, and waiting for other slots
  double cores_busy = 0;
  double client = 0;  // share of this process in the time of all cores
};

Utilization UtilizationOf(const ServeCell& cell, int cores);

// Returns a sentence that says what keeps this step from more tokens/s.
std::string LimitOf(const ServeCell& cell, const ServeContext& context);

// Leaves out cells without a run.
std::string RenderServeTable(const std::vector<ServeCell>& cells, const ServeContext& context,
                             const Palette& palette);
nlohmann::json ServeToJson(const std::vector<ServeCell>& cells, const ServeContext& context);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_BENCH_SERVE_BENCH_SERVE_REPORT_H_
