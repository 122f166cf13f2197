// Tiny language models without weights. Logits are a hash of the whole context, so every penalty
// and mask matters.
#ifndef TANDEM_TESTS_KERNELS_SAMPLING_DISTRIBUTION_SYNTHETIC_MODEL_H_
#define TANDEM_TESTS_KERNELS_SAMPLING_DISTRIBUTION_SYNTHETIC_MODEL_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/sampling/transform/sampling_params.h"

namespace tandem::testing {

class SyntheticModel {
 public:
  // The logits are about N(0, spread²).
  SyntheticModel(int32_t vocabulary_size, uint64_t seed, float spread = 1.5f)
      : vocabulary_size_(vocabulary_size), parts_{{seed, spread}} {}

  // Returns a model with independent logits of spread `spread` added. It serves as a drafter that
  // is nearly right.
  SyntheticModel Perturbed(uint64_t seed, float spread) const;
  // Returns a model with practically all probability on tokens [first, last).
  SyntheticModel Within(int32_t first, int32_t last) const;

  int32_t vocabulary_size() const { return vocabulary_size_; }
  void Logits(std::span<const int32_t> context, std::span<float> logits) const;

 private:
  struct Part {
    uint64_t seed;
    float spread;
  };

  int32_t vocabulary_size_;
  std::vector<Part> parts_;
  int32_t first_ = 0;
  int32_t last_ = INT32_MAX;
};

// The prompt of all these tests. Penalties see it.
inline constexpr int32_t kPrompt[] = {1, 4};

// Returns the probability of each sequence of `length` tokens after the prompt under the target
// alone. Enumerates with the double-precision reference. The token ids are the digits of the index,
// and the first token is the most significant digit.
std::vector<double> EnumerateTarget(const SyntheticModel& target, const SamplingParams& params,
                                    int length);

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_KERNELS_SAMPLING_DISTRIBUTION_SYNTHETIC_MODEL_H_
