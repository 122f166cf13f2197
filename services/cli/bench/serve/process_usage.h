// Reports the processor time of processes and of the machine, from Linux's /proc.
#ifndef TANDEM_SERVICES_CLI_BENCH_SERVE_PROCESS_USAGE_H_
#define TANDEM_SERVICES_CLI_BENCH_SERVE_PROCESS_USAGE_H_

#include <map>
#include <string>

namespace tandem::cli {

// Seconds of processor time, user and system together.
struct CpuSeconds {
  double own = 0;  // this process, since its start
  // Running children by name, one for each name, since their start.
  std::map<std::string, double> children;
  double machine = 0;  // all cores and processes since boot, without idle time
  // Time that this machine wanted and that the hypervisor gave to another machine.
  double stolen = 0;
};

CpuSeconds ReadCpuSeconds();

// Returns the share, in [0, 1], of the processor time that this machine wanted between the two
// readings and did not get.
double StolenShare(const CpuSeconds& before, const CpuSeconds& after);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_BENCH_SERVE_PROCESS_USAGE_H_
