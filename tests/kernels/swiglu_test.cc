#include "kernels/swiglu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/kernels/every_target.h"

namespace tandem {
namespace {

using testing::SameBits;
using testing::UniformFloats;

class SwiGluTest : public testing::EveryTargetTest {
 protected:
  static SwiGluArgs Args(std::vector<float>& gate, const std::vector<float>& up, size_t rows,
                         size_t size) {
    return {.gate = gate.data() + 1,
            .gate_stride = size + 2,
            .up = up.data() + 1,
            .up_stride = size + 3,
            .rows = rows,
            .size = size};
  }
};

TEST_P(SwiGluTest, EqualsTheReferenceToRounding) {
  for (const size_t size : {0, 1, 3, 8, 17, 40, 64, 8192}) {
    for (const size_t rows : {0, 1, 3}) {
      std::vector<float> got = UniformFloats(1 + rows * (size + 2), 1);
      for (float& gate : got) gate *= 20;
      std::vector<float> want = got;
      const std::vector<float> up = UniformFloats(1 + rows * (size + 3), 2);
      SwiGlu(Args(got, up, rows, size));
      SwiGluReference(Args(want, up, rows, size));
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], want[i], 1e-6 * std::abs(want[i]) + 1e-12) << size << " at " << i;
      }
    }
  }
}

TEST_P(SwiGluTest, ARowHasTheSameBitsAloneAndAmongOthers) {
  constexpr size_t kSize = 37;
  constexpr size_t kRows = 4;
  std::vector<float> together = UniformFloats(1 + kRows * (kSize + 2), 1);
  std::vector<float> alone = together;
  const std::vector<float> up = UniformFloats(1 + kRows * (kSize + 3), 2);
  SwiGlu(Args(together, up, kRows, kSize));
  for (size_t row = 0; row < kRows; ++row) {
    SwiGluArgs args = Args(alone, up, 1, kSize);
    args.gate += row * args.gate_stride;
    args.up += row * args.up_stride;
    SwiGlu(args);
  }
  EXPECT_TRUE(SameBits(together.data(), alone.data(), alone.size()));
}

TEST_P(SwiGluTest, SaturatesAtBothEnds) {
  std::vector<float> gate(20);
  const std::vector<float> up(20, 2.0f);
  const float values[] = {-1e30f, -200.0f, -100.0f, 0.0f, 100.0f, 200.0f, 1e30f};
  const float want[] = {0.0f, 0.0f, 0.0f, 0.0f, 200.0f, 400.0f, 2e30f};
  for (size_t i = 0; i < std::size(values); ++i) {
    gate.assign(20, values[i]);
    SwiGlu({.gate = gate.data(),
            .gate_stride = 20,
            .up = up.data(),
            .up_stride = 20,
            .rows = 1,
            .size = 20});
    // Far below zero, the quotient is tiny compared with the input, but it is not exactly 0.
    const float tolerance = std::abs(values[i]) * 1e-36f;
    for (const float got : gate) {
      ASSERT_NEAR(got, want[i], std::abs(want[i]) * 1e-6f + tolerance) << values[i];
    }
  }
}

TEST_P(SwiGluTest, NanStaysNan) {
  std::vector<float> gate(20, std::numeric_limits<float>::quiet_NaN());
  const std::vector<float> up(20, 1.0f);
  SwiGlu({.gate = gate.data(),
          .gate_stride = 20,
          .up = up.data(),
          .up_stride = 20,
          .rows = 1,
          .size = 20});
  for (const float value : gate) EXPECT_TRUE(std::isnan(value));
}

INSTANTIATE_TEST_SUITE_P(Targets, SwiGluTest, ::testing::ValuesIn(testing::EveryTarget()),
                         testing::TargetName);

}  // namespace
}  // namespace tandem
