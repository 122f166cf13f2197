// Ratios of times from interleaved pairs. A and B are measured right after each other, so that a
// slow phase of the machine affects both.
#ifndef TANDEM_BENCH_SUPPORT_PAIRED_RATIO_H_
#define TANDEM_BENCH_SUPPORT_PAIRED_RATIO_H_

#include <cstddef>
#include <span>

namespace tandem::bench {

// The geometric mean of a[i] / b[i] and its 95% interval (Student's t on the logarithms).
struct Ratio {
  double mean = 0;
  double low = 0;
  double high = 0;
  size_t pairs = 0;
};

// PRECOND: `a` and `b` have the same size of at least 2, and all values are positive.
Ratio PairedRatio(std::span<const double> a, std::span<const double> b);

double Median(std::span<const double> values);

}  // namespace tandem::bench

#endif  // TANDEM_BENCH_SUPPORT_PAIRED_RATIO_H_
