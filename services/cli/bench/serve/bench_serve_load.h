// Puts a load on a server and measures what its clients see.
#ifndef TANDEM_SERVICES_CLI_BENCH_SERVE_BENCH_SERVE_LOAD_H_
#define TANDEM_SERVICES_CLI_BENCH_SERVE_BENCH_SERVE_LOAD_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "services/cli/bench/run_totals.h"
#include "services/cli/bench/serve/bench_serve_workload.h"
#include "services/cli/client/client_security.h"

namespace tandem::cli {

// How requests come, and when a run ends.
struct LoadStep {
  int clients = 0;       // closed loop: so many, each with one request at a time
  double rate = 0;       // open loop, when `clients` is 0: Poisson arrivals a second
  int64_t requests = 0;  // the run ends when so many have ended; 0: by time alone
  double seconds = 0;    // or after so long: what still runs is cancelled; 0: by requests alone
  // Before these: the same load, of which nothing counts but `most_open`. Of requests that began in
  // it no times count. `on_measured` is called when it is over. Of runs that end by time alone.
  double warm_up_seconds = 0;
  std::function<void()> on_measured = [] {};
  uint64_t seed = 1;  // of the arrivals
  // Prompts are cached for each tenant apart: with a name of its own a run finds nothing in the
  // prefix cache but its own prompts. Empty: none.
  std::string tenant = {};
};

// Sums over runs. Times are seconds of requests that ended with OK (but for `refused`), as the
// clients measured them (but for `queue`).
struct LoadResult {
  double wall_seconds = 0;
  int64_t tokens = 0;     // that arrived, those of requests that were cancelled too
  int64_t finished = 0;   // with OK
  int64_t cancelled = 0;  // by the client, as planned
  std::map<std::string, int64_t> failures;  // by status
  int64_t prompt_tokens = 0;
  int64_t cached_prompt_tokens = 0;  // found in the prefix cache
  RunTotals totals;
  int most_open = 0;                // requests at once
  std::vector<double> first_token;  // from sending the request to its first token
  std::vector<double>
      time_per_token;         // of each request: first token to last, over the tokens between
  std::vector<double> gaps;   // between two messages with tokens of one request
  std::vector<double> queue;  // waiting for a slot, as the server says
  // From sending it to its end, of each that failed without a token.
  std::vector<double> refused;
};

class LoadClient {
 public:
  // Plans request number `index` of a run, counted from 0.
  using Plan = std::function<PlannedRequest(uint64_t index)>;
  // Called some ten times a second with the part of the run that is over; false interrupts it:
  // what runs is cancelled and not counted.
  using OnProgress = std::function<bool(double fraction)>;

  // All streams are served by the thread that calls Run: they need no threads of their own.
  // `max_streams` at once at most share a connection's limit; more connections are opened for more,
  // and `connections` at least. Streams take turns.
  LoadClient(const std::string& address, int max_streams, const ClientSecurity& security = {},
             int connections = 1);
  ~LoadClient();

  // Adds what it measured to `result`. Returns tokens a second of this run. A closed-loop client
  // that was refused comes back after the time that the server names, or 0.1 s.
  double Run(const LoadStep& step, const Plan& plan, const OnProgress& on_progress,
             LoadResult* result);

 private:
  struct Impl;  // keeps gRPC's headers out of here
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_BENCH_SERVE_BENCH_SERVE_LOAD_H_
