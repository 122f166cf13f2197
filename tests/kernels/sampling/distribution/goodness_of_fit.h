// Tests whether a sample comes from a distribution. All statistical tests use this test.
#ifndef TANDEM_TESTS_KERNELS_SAMPLING_DISTRIBUTION_GOODNESS_OF_FIT_H_
#define TANDEM_TESTS_KERNELS_SAMPLING_DISTRIBUTION_GOODNESS_OF_FIT_H_

#include <cstdint>
#include <span>

namespace tandem::testing {

// Probability that a sample from the right distribution is refused. For some hundred tests
// together, the probability stays under 1e-6.
inline constexpr double kFalseAlarmRate = 1e-8;

// Number of samples that each statistical test takes. Each planted bias must be caught with as
// many.
inline constexpr int64_t kNumDraws = 200'000;

// Returns the p-value of the likelihood-ratio (G) test: the chance of a sample that differs from
// the distribution at least this much. Cells that expect fewer than 5 are pooled. Returns 0 if a
// cell of probability 0 was seen.
//   probabilities  one for each cell; their sum is 1
//   observed       one count for each cell
double GTestPValue(std::span<const double> probabilities, std::span<const int64_t> observed);

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_KERNELS_SAMPLING_DISTRIBUTION_GOODNESS_OF_FIT_H_
