// What is said of many measured times.
#ifndef TANDEM_SERVICES_CLI_BENCH_SERVE_PERCENTILES_H_
#define TANDEM_SERVICES_CLI_BENCH_SERVE_PERCENTILES_H_

#include <cstddef>
#include <vector>

namespace tandem::cli {

// All 0 where nothing was measured.
struct Percentiles {
  double p50 = 0;
  double p95 = 0;
  double p99 = 0;
  double mean = 0;
  double max = 0;
  size_t count = 0;
};

// `fraction` (in [0, 1]) of the way through the sorted values, between two of them along the
// straight line: the definition of numpy.percentile. PRECOND: sorted ascending, not empty.
double Quantile(const std::vector<double>& sorted, double fraction);

Percentiles PercentilesOf(std::vector<double> values);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_BENCH_SERVE_PERCENTILES_H_
