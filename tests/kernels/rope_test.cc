#include "kernels/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/kernels/every_target.h"

namespace tandem {
namespace {

using testing::SameBits;
using testing::UniformFloats;

class RopeTest : public testing::EveryTargetTest {
 protected:
  static constexpr size_t kPositions = 50;

  static std::vector<float> Table(size_t head_size) {
    std::vector<float> table(kPositions * head_size);
    for (size_t position = 0; position < kPositions; ++position) {
      for (size_t i = 0; i < head_size / 2; ++i) {
        const double angle = static_cast<double>(position) / (1.0 + static_cast<double>(i));
        table[position * head_size + i] = static_cast<float>(std::cos(angle));
        table[position * head_size + head_size / 2 + i] = static_cast<float>(std::sin(angle));
      }
    }
    return table;
  }
};

TEST_P(RopeTest, EqualsTheReferenceToRounding) {
  const std::vector<int32_t> positions = {0, 7, 7, 49, 1};
  for (const size_t head_size : {2, 6, 8, 14, 16, 30, 64, 66, 128, 256}) {
    const std::vector<float> table = Table(head_size);
    for (const size_t rows : {size_t{0}, size_t{1}, positions.size()}) {
      const size_t stride = 3 * head_size + 5;
      std::vector<float> got = UniformFloats(1 + rows * stride, head_size);
      std::vector<float> want = got;
      RopeArgs args = {.x = got.data() + 1,
                       .x_stride = stride,
                       .rows = rows,
                       .num_heads = 3,
                       .head_size = head_size,
                       .positions = positions.data(),
                       .table = table.data()};
      Rope(args);
      args.x = want.data() + 1;
      RopeReference(args);
      for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 3e-7) << head_size;
    }
  }
}

TEST_P(RopeTest, ARowHasTheSameBitsAloneAndAmongOthers) {
  const std::vector<int32_t> positions = {3, 12, 49, 0};
  constexpr size_t kHeadSize = 22;
  constexpr size_t kStride = 2 * kHeadSize;
  const std::vector<float> table = Table(kHeadSize);
  std::vector<float> together = UniformFloats(positions.size() * kStride, 1);
  std::vector<float> alone = together;
  RopeArgs args = {.x = together.data(),
                   .x_stride = kStride,
                   .rows = positions.size(),
                   .num_heads = 2,
                   .head_size = kHeadSize,
                   .positions = positions.data(),
                   .table = table.data()};
  Rope(args);
  args.rows = 1;
  for (size_t row = 0; row < positions.size(); ++row) {
    args.x = alone.data() + row * kStride;
    args.positions = &positions[row];
    Rope(args);
  }
  EXPECT_TRUE(SameBits(together.data(), alone.data(), alone.size()));
}

TEST_P(RopeTest, RotatesDimensionsThatAreHalfAHeadApart) {
  // The table has a quarter turn of the first pair of a head of four: (x0, x2) -> (-x2, x0).
  const float table[] = {0, 1, 1, 0};
  float x[] = {1, 2, 3, 4};
  const int32_t position = 0;
  Rope({.x = x,
        .x_stride = 4,
        .rows = 1,
        .num_heads = 1,
        .head_size = 4,
        .positions = &position,
        .table = table});
  EXPECT_EQ(std::vector<float>(x, x + 4), (std::vector<float>{-3, 2, 1, 4}));
}

INSTANTIATE_TEST_SUITE_P(Targets, RopeTest, ::testing::ValuesIn(testing::EveryTarget()),
                         testing::TargetName);

}  // namespace
}  // namespace tandem
