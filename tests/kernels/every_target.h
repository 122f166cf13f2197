// Runs a test once for every instruction set that this machine has and for which the kernels were
// compiled.
#ifndef TANDEM_TESTS_KERNELS_EVERY_TARGET_H_
#define TANDEM_TESTS_KERNELS_EVERY_TARGET_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "hwy/highway.h"
#include "hwy/targets.h"
#include "kernels/cpu.h"

namespace tandem::testing {

class EveryTargetTest : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    hwy::SetSupportedTargetsForTest(GetParam());
    ASSERT_EQ(VectorInstructions(), hwy::TargetName(GetParam()));
  }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

inline std::vector<int64_t> EveryTarget() {
  std::vector<int64_t> targets;
  for (int64_t left = hwy::SupportedTargets() & HWY_TARGETS; left != 0; left &= left - 1) {
    targets.push_back(left & -left);
  }
  return targets;
}

inline std::string TargetName(const ::testing::TestParamInfo<int64_t>& target) {
  return hwy::TargetName(target.param);
}

inline std::vector<float> UniformFloats(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(random);
  return values;
}

inline bool SameBits(const float* a, const float* b, size_t count) {
  return count == 0 || std::memcmp(a, b, count * sizeof(float)) == 0;
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_KERNELS_EVERY_TARGET_H_
