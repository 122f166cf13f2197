// What a load test measured, as a table and as JSON.
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

// All runs of one step, mode and kind of drafting.
struct ServeCell {
  int clients = 0;  // closed loop
  double rate = 0;  // open loop, when there are no clients
  std::string mode;
  std::string drafting;
  LoadResult result;
  CpuSeconds cpu;  // while its runs lasted
  int runs = 0;
  int set_aside = 0;           // runs of pairs that were run again, and do not count
  std::vector<double> ratios;  // tokens/s over those with drafting off in the same pair
};

struct ServeContext {
  v1::ServerInfo server;
  std::string hardware;
  std::string command_line;
  int cores = 1;
  std::optional<double> target_weights;  // that a token is multiplied with; unknown with --connect
  bool interrupted = false;
};

// What the server's time went into, in [0, 1]. Of the time in which streams decode: how much of it
// the workers computed. Of all cores' time: how much they were busy.
struct Utilisation {
  double verify = 0;
  double draft = 0;
  double transfer = 0;
  double router = 0;  // the router's own work, and waiting for other slots
  double cores_busy = 0;
  double client = 0;  // of all cores' time: this process
};

Utilisation UtilisationOf(const ServeCell& cell, int cores);

// What keeps the step from more tokens/s, in a sentence.
std::string LimitOf(const ServeCell& cell, const ServeContext& context);

// Cells without a run are left out.
std::string RenderServeTable(const std::vector<ServeCell>& cells, const ServeContext& context,
                             const Palette& palette);
nlohmann::json ServeToJson(const std::vector<ServeCell>& cells, const ServeContext& context);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_BENCH_SERVE_BENCH_SERVE_REPORT_H_
