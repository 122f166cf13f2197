// The two running statistics of the lossless audit. Each keeps O(1) numbers, and its evidence is
// valid at every moment: while the path is lossless, exp(log_evidence()) is a nonnegative
// martingale with mean 1. The probability that it ever reaches 1/a is therefore at most a (Ville
// 1939), however often it is read. docs/audit.md derives both statistics.
#ifndef TANDEM_SERVICES_ROUTER_AUDIT_AUDIT_STATISTICS_H_
#define TANDEM_SERVICES_ROUTER_AUDIT_AUDIT_STATISTICS_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace tandem {

// Tests whether the transforms are uniform on [0, 1). Counts them in bins of equal width. The
// evidence is the ratio of two likelihoods of the counts: under Dirichlet-multinomial alternatives,
// and under uniformity (Lindon and Malek 2022). It is averaged over concentrations, so that a large
// bias is found early and a small bias is found in the end.
class UniformityStatistic {
 public:
  // u is in [0, 1]; 1 counts in the last bin.
  void Add(double u);
  double log_evidence() const;
  // Pearson's chi-square, transformed to be about standard normal (Wilson and Hilferty 1931). 0
  // before the first observation.
  double z() const;

 private:
  static constexpr size_t kNumBins = 16;
  // Prior observations of each bin under the alternatives, which range from far from uniform to
  // very near.
  static constexpr std::array<double, 8> kConcentrations = {1,    8,     64,     512,
                                                            4096, 32768, 262144, 2097152};

  std::array<uint64_t, kNumBins> counts_{};
  uint64_t total_ = 0;
  std::array<double, kConcentrations.size()> log_likelihood_ratios_{};
};

// Tests whether tokens are the drafter's favorite at the frequency that the target states. A sample
// is 1[hit] - m, where m is the target's probability of a hit. The sample determines the hit and m,
// and so the variance m (1 - m). The evidence is the average of exponentially tilted likelihood
// ratios (Robbins 1970), and is exact for every sequence of m.
class DraftModeStatistic {
 public:
  // `excess` is a sample in [-1, 1]; 0 adds nothing.
  void Add(double excess);
  double log_evidence() const;
  // Sum of the samples, divided by the square root of the sum of their variances. 0 if that second
  // sum is 0.
  double z() const;

 private:
  // Number of tilts. Their log-odds are ±2^2, ±2^1, … ±2^-9.
  static constexpr size_t kNumTilts = 24;

  double sum_ = 0;
  double variance_ = 0;
  std::array<double, kNumTilts> log_likelihood_ratios_{};

  struct Tilt {
    double log_odds = 0;
    double growth = 0;  // exp(log_odds) - 1
  };
  static const std::array<Tilt, kNumTilts>& Tilts();
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_AUDIT_AUDIT_STATISTICS_H_
