// Percentiles of measured times.
#ifndef TANDEM_SERVICES_CLI_BENCH_SERVE_PERCENTILES_H_
#define TANDEM_SERVICES_CLI_BENCH_SERVE_PERCENTILES_H_

#include <cstddef>
#include <vector>

namespace tandem::cli {

// All percentiles are 0 if nothing was measured.
struct Percentiles {
  double p50 = 0;
  double p95 = 0;
  double p99 = 0;
  double mean = 0;
  double max = 0;
  size_t count = 0;
};

// Returns the value at `fraction` (in [0, 1]) of the sorted values, with linear interpolation
// between two values. numpy.percentile has the same definition. PRECOND: `sorted` is ascending and
// not empty.
double Quantile(const std::vector<double>& sorted, double fraction);

Percentiles PercentilesOf(std::vector<double> values);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_BENCH_SERVE_PERCENTILES_H_
