// The two running statistics of the lossless audit. Each keeps O(1) numbers, and its evidence is
// valid at every moment: exp(log_evidence()) is a nonnegative martingale of mean 1 while the path is
// lossless, so that it ever reaches 1/a has probability at most a (Ville 1939), however often and
// whenever somebody looks. docs/audit.md derives both.
#ifndef TANDEM_SERVICES_ROUTER_AUDIT_AUDIT_STATISTICS_H_
#define TANDEM_SERVICES_ROUTER_AUDIT_AUDIT_STATISTICS_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace tandem {

// Are the transforms uniform on [0, 1)? Counts them in bins of equal width. The evidence is the
// likelihood of the counts under Dirichlet-multinomial alternatives over that under uniformity
// (Lindon and Malek 2022), averaged over concentrations, so that a large bias is seen early and a
// small one is seen at all.
class UniformityStatistic {
 public:
  // u in [0, 1]; 1 counts in the last bin.
  void Add(double u);
  double log_evidence() const;
  // Pearson's chi-square, made about standard normal (Wilson and Hilferty 1931). 0 when empty.
  double z() const;

 private:
  static constexpr size_t kNumBins = 16;
  // Expected observations of a bin that the alternatives are worth: far from uniform to very near.
  static constexpr std::array<double, 8> kConcentrations = {1,    8,     64,     512,
                                                            4096, 32768, 262144, 2097152};

  std::array<uint64_t, kNumBins> counts_{};
  uint64_t total_ = 0;
  std::array<double, kConcentrations.size()> log_likelihood_ratios_{};
};

// Are tokens the drafter's favourite as often as the target says? Samples are 1[hit] - m with m the
// target's probability of a hit: both are known from the sample, and so is the variance m (1 - m).
// The evidence is the average of exponentially tilted likelihood ratios (Robbins 1970), exact for
// every sequence of m.
class DraftModeStatistic {
 public:
  // In [-1, 1]; 0 adds nothing.
  void Add(double excess);
  double log_evidence() const;
  // Sum over the square root of the sum of variances. 0 when that is.
  double z() const;

 private:
  // Of log-odds: ±2^2, ±2^1, … ±2^-9.
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
