// What the operating system says about the time and memory of processes: /proc of Linux.
#ifndef TANDEM_SERVICES_CLI_BENCH_SERVE_PROCESS_USAGE_H_
#define TANDEM_SERVICES_CLI_BENCH_SERVE_PROCESS_USAGE_H_

#include <map>
#include <string>

namespace tandem::cli {

// Seconds since they started, user and system together.
struct CpuSeconds {
  double own = 0;                          // of this process
  std::map<std::string, double> children;  // by name; those that run now, one of a name
  double machine = 0;                      // of all cores and processes since boot, idling left out
  double stolen = 0;  // wanted by this machine, given to another one by the hypervisor
};

CpuSeconds ReadCpuSeconds();

// In [0, 1]: of the processor time that this machine wanted between the two, what others got.
double StolenShare(const CpuSeconds& before, const CpuSeconds& after);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_BENCH_SERVE_PROCESS_USAGE_H_
