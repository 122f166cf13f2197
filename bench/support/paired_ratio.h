// Ratios of times from interleaved pairs: A and B measured right after each other, so that what
// slows the machine for a while slows both.
#ifndef TANDEM_BENCH_SUPPORT_PAIRED_RATIO_H_
#define TANDEM_BENCH_SUPPORT_PAIRED_RATIO_H_

#include <cstddef>
#include <span>

namespace tandem::bench {

// Geometric mean of a[i] / b[i] and its 95 % interval (Student's t on the logarithms).
struct Ratio {
  double mean = 0;
  double low = 0;
  double high = 0;
  size_t pairs = 0;
};

// PRECOND: as many of one as of the other, at least 2, all positive.
Ratio PairedRatio(std::span<const double> a, std::span<const double> b);

double Median(std::span<const double> values);

}  // namespace tandem::bench

#endif  // TANDEM_BENCH_SUPPORT_PAIRED_RATIO_H_
