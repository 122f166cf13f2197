#include "kernels/rms_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/kernels/every_target.h"

namespace tandem {
namespace {

using testing::SameBits;
using testing::UniformFloats;

class RmsNormTest : public testing::EveryTargetTest {
 protected:
  // Returns arguments whose rows have gaps. Nothing is aligned.
  static RmsNormArgs Args(const std::vector<float>& x, const std::vector<float>& weight,
                          std::vector<float>& out, size_t rows, size_t size) {
    return {.x = x.data() + 1,
            .x_stride = size + 3,
            .rows = rows,
            .size = size,
            .weight = weight.data() + 1,
            .eps = 1e-5f,
            .out = out.data() + 1,
            .out_stride = size + 5};
  }
};

TEST_P(RmsNormTest, EqualsTheReferenceToRounding) {
  for (const size_t size : {1, 2, 3, 7, 8, 15, 16, 31, 64, 65, 100, 576, 2048, 8191}) {
    for (const size_t rows : {0, 1, 4}) {
      const std::vector<float> x = UniformFloats(1 + rows * (size + 3), size);
      const std::vector<float> weight = UniformFloats(1 + size, 2);
      std::vector<float> got(1 + rows * (size + 5), -7.0f);
      std::vector<float> want = got;
      RmsNorm(Args(x, weight, got, rows, size));
      RmsNormReference(Args(x, weight, want, rows, size));
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], want[i], 2e-6 * std::abs(want[i])) << size << " at " << i;
      }
    }
  }
}

TEST_P(RmsNormTest, ARowHasTheSameBitsAloneAndAmongOthers) {
  for (const size_t size : {3, 64, 129}) {
    constexpr size_t kRows = 5;
    const std::vector<float> x = UniformFloats(1 + kRows * (size + 3), 1);
    const std::vector<float> weight = UniformFloats(1 + size, 2);
    std::vector<float> together(1 + kRows * (size + 5));
    std::vector<float> alone = together;
    RmsNorm(Args(x, weight, together, kRows, size));
    for (size_t row = 0; row < kRows; ++row) {
      RmsNormArgs args = Args(x, weight, alone, 1, size);
      args.x += row * args.x_stride;
      args.out += row * args.out_stride;
      RmsNorm(args);
    }
    EXPECT_TRUE(SameBits(together.data(), alone.data(), alone.size())) << size;
  }
}

TEST_P(RmsNormTest, AHeadHasTheBitsOfARowOfItsSize) {
  constexpr size_t kRows = 3;
  constexpr size_t kHeads = 5;
  for (const size_t size : {2, 16, 65, 128}) {
    // Heads of a row are contiguous. Other values lie between the rows.
    const size_t stride = kHeads * size + 7;
    const std::vector<float> x = UniformFloats(kRows * stride, 1);
    const std::vector<float> weight = UniformFloats(size, 2);
    std::vector<float> got(kRows * stride, -7.0f);
    std::vector<float> want = got;
    std::vector<float> reference = got;
    RmsNormArgs args = {.x = x.data(),
                        .x_stride = stride,
                        .rows = kRows,
                        .num_heads = kHeads,
                        .size = size,
                        .weight = weight.data(),
                        .eps = 1e-6f,
                        .out = got.data(),
                        .out_stride = stride};
    RmsNorm(args);
    args.out = reference.data();
    RmsNormReference(args);
    args.num_heads = 1;
    for (size_t head = 0; head < kHeads; ++head) {
      args.x = x.data() + head * size;
      args.out = want.data() + head * size;
      RmsNorm(args);
    }
    EXPECT_TRUE(SameBits(got.data(), want.data(), got.size())) << size;
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], reference[i], 2e-6 * std::abs(reference[i])) << size << " at " << i;
    }
  }
}

TEST_P(RmsNormTest, MayWriteOverItsInput) {
  const std::vector<float> x = UniformFloats(100, 1);
  const std::vector<float> weight = UniformFloats(100, 2);
  std::vector<float> out(100);
  std::vector<float> in_place = x;
  RmsNormArgs args = {.x = x.data(),
                      .x_stride = 50,
                      .rows = 2,
                      .size = 50,
                      .weight = weight.data(),
                      .eps = 1e-5f,
                      .out = out.data(),
                      .out_stride = 50};
  RmsNorm(args);
  args.x = in_place.data();
  args.out = in_place.data();
  RmsNorm(args);
  EXPECT_EQ(in_place, out);
}

INSTANTIATE_TEST_SUITE_P(Targets, RmsNormTest, ::testing::ValuesIn(testing::EveryTarget()),
                         testing::TargetName);

}  // namespace
}  // namespace tandem
