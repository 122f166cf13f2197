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

// The arrival of requests, and the end of a run.
struct LoadStep {
  int clients = 0;       // closed loop: number of clients, each with one request at a time
  double rate = 0;       // open loop, when `clients` is 0: Poisson arrivals per second
  int64_t requests = 0;  // ended requests that end the run; 0: `seconds` alone ends it
  // Time that ends the run. Requests that are still running are canceled. 0: `requests` alone ends
  // the run.
  double seconds = 0;
  // Time before the measurement, with the same load. Only `most_open` counts then. Requests that
  // began in this time add no times. `on_measured` is called at its end. Only for runs that end by
  // `seconds`.
  double warm_up_seconds = 0;
  std::function<void()> on_measured = [] {};
  uint64_t seed = 1;  // seed of the arrivals
  // The prefix cache keeps the prompts of each tenant apart. A run with a tenant of its own
  // therefore finds only its own prompts there. Empty: no tenant.
  std::string tenant = {};
};

// Sums over runs. Times are in seconds. They are of requests that ended with OK, except for
// `refused`. The clients measured them, except for `queue`.
struct LoadResult {
  double wall_seconds = 0;
  int64_t tokens = 0;    // tokens that arrived, also in requests that were canceled later
  int64_t finished = 0;  // requests that ended with OK
  int64_t canceled = 0;  // requests that the client canceled as planned
  std::map<std::string, int64_t> failures;  // number of other requests, by status
  int64_t prompt_tokens = 0;
  int64_t cached_prompt_tokens = 0;  // tokens found in the prefix cache
  RunTotals totals;
  int most_open = 0;                // largest number of requests at the same time
  std::vector<double> first_token;  // from sending the request to its first token
  // For each request: time from its first token to its last, divided by the tokens after the first.
  std::vector<double> time_per_token;
  std::vector<double> gaps;   // times between two messages with tokens of one request
  std::vector<double> queue;  // times of waiting for a slot, as the server reports them
  // Times from sending a request to its end, for requests that failed without a token.
  std::vector<double> refused;
};

class LoadClient {
 public:
  // Plans request number `index` of a run, counted from 0.
  using Plan = std::function<PlannedRequest(uint64_t index)>;
  // Called about ten times per second with the part of the run that is over. Returning false
  // interrupts the run: running requests are canceled and do not count.
  using OnProgress = std::function<bool(double fraction)>;

  // The thread that calls Run serves all streams. Streams take turns on the connections. There are
  // at least `connections` connections, and enough of them for `max_streams` simultaneous streams
  // within the limit of a connection.
  LoadClient(const std::string& address, int max_streams, const ClientSecurity& security = {},
             int connections = 1);
  ~LoadClient();

  // Adds the measurements to `result`. Returns the tokens per second of this run. In a closed loop,
  // a refused client comes back after the time that the server names, or after 0.1 s.
  double Run(const LoadStep& step, const Plan& plan, const OnProgress& on_progress,
             LoadResult* result);

 private:
  struct Impl;  // keeps gRPC's headers out of this header
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_BENCH_SERVE_BENCH_SERVE_LOAD_H_
