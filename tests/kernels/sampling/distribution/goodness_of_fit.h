// Does a sample come from a distribution? The statistical tests' one question.
#ifndef TANDEM_TESTS_KERNELS_SAMPLING_DISTRIBUTION_GOODNESS_OF_FIT_H_
#define TANDEM_TESTS_KERNELS_SAMPLING_DISTRIBUTION_GOODNESS_OF_FIT_H_

#include <cstdint>
#include <span>

namespace tandem::testing {

// A sample from the right distribution is refused this often: some hundred tests together stay
// under 1e-6.
inline constexpr double kFalseAlarmRate = 1e-8;

// How many samples each statistical test takes, and each planted bias must be caught with.
inline constexpr int64_t kNumDraws = 200'000;

// p-value of the likelihood-ratio (G) test: the chance of a sample at least this unlike the
// distribution. Cells that expect fewer than 5 are pooled. 0 when a cell of probability 0 was seen.
//   probabilities  sum to 1;  observed  counts, one for each
double GTestPValue(std::span<const double> probabilities, std::span<const int64_t> observed);

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_KERNELS_SAMPLING_DISTRIBUTION_GOODNESS_OF_FIT_H_
