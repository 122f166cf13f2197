#include "kernels/add_silu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/kernels/every_target.h"

namespace tandem {
namespace {

using testing::SameBits;
using testing::UniformFloats;

class AddSiluTest : public testing::EveryTargetTest {
 protected:
  static AddSiluArgs Args(const std::vector<float>& x, std::vector<float>& y, size_t rows,
                          size_t size) {
    return {.x = x.data() + 1,
            .x_stride = size + 3,
            .y = y.data() + 1,
            .y_stride = size + 2,
            .rows = rows,
            .size = size};
  }
};

TEST_P(AddSiluTest, EqualsTheReferenceToRounding) {
  for (const size_t size : {0, 1, 3, 8, 17, 40, 64, 2048}) {
    for (const size_t rows : {0, 1, 3}) {
      const std::vector<float> x = UniformFloats(1 + rows * (size + 3), 1);
      std::vector<float> got = UniformFloats(1 + rows * (size + 2), 2);
      for (float& y : got) y *= 20;
      std::vector<float> want = got;
      AddSilu(Args(x, got, rows, size));
      AddSiluReference(Args(x, want, rows, size));
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], want[i], 2e-6 * std::abs(want[i]) + 1e-7) << size << " at " << i;
      }
    }
  }
}

TEST_P(AddSiluTest, ARowHasTheSameBitsAloneAndAmongOthers) {
  constexpr size_t kSize = 37;
  constexpr size_t kRows = 4;
  const std::vector<float> x = UniformFloats(1 + kRows * (kSize + 3), 1);
  std::vector<float> together = UniformFloats(1 + kRows * (kSize + 2), 2);
  std::vector<float> alone = together;
  AddSilu(Args(x, together, kRows, kSize));
  for (size_t row = 0; row < kRows; ++row) {
    AddSiluArgs args = Args(x, alone, 1, kSize);
    args.x += row * args.x_stride;
    args.y += row * args.y_stride;
    AddSilu(args);
  }
  EXPECT_TRUE(SameBits(together.data(), alone.data(), alone.size()));
}

TEST_P(AddSiluTest, NanStaysNan) {
  const std::vector<float> x(24, 1.0f);
  std::vector<float> y(24, std::numeric_limits<float>::quiet_NaN());
  AddSilu(Args(x, y, 1, 20));
  for (size_t i = 1; i <= 20; ++i) EXPECT_TRUE(std::isnan(y[i]));
}

INSTANTIATE_TEST_SUITE_P(Targets, AddSiluTest, ::testing::ValuesIn(testing::EveryTarget()),
                         testing::TargetName);

}  // namespace
}  // namespace tandem
