// Tests the small kernels of a layer on a device: normalization, position embedding, gate,
// embedding.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/embedding.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"
#include "tests/cuda/kernels/device_test.h"

namespace tandem {
namespace {

using testing::DeviceTest;

class RmsNormCudaTest : public DeviceTest {
 protected:
  static constexpr float kGap = -7;

  std::vector<float> Run(RmsNormArgs args, const std::vector<float>& x,
                         const std::vector<float>& weight) {
    args.x = Upload(x);
    args.weight = Upload(weight);
    float* const out = Upload(std::vector<float>(args.rows * args.out_stride + 1, kGap));
    args.out = out;
    const absl::Status status = RmsNorm(args, stream());
    EXPECT_TRUE(status.ok()) << status;
    return Download(out, args.rows * args.out_stride);
  }
};

TEST_F(RmsNormCudaTest, EqualsTheReferenceToRoundingAndLeavesGapsAlone) {
  for (const size_t size : {1, 31, 64, 255, 256, 257, 2048, 3072}) {
    for (const size_t rows : {1, 3}) {
      const std::vector<float> x = Uniform(rows * (size + 3));
      const std::vector<float> weight = Uniform(size);
      RmsNormArgs args{
          .x_stride = size + 3, .rows = rows, .size = size, .eps = 1e-5f, .out_stride = size + 5};
      const std::vector<float> got = Run(args, x, weight);
      std::vector<float> want(rows * (size + 5), kGap);
      args.x = x.data();
      args.weight = weight.data();
      args.out = want.data();
      RmsNormReference(args);
      for (size_t i = 0; i < want.size(); ++i)
        ASSERT_NEAR(got[i], want[i], 3e-6 * std::abs(want[i])) << size << " at " << i;
    }
  }
}

TEST_F(RmsNormCudaTest, ARowHasTheSameBitsAloneAndAmongOthers) {
  const size_t size = 300;
  const std::vector<float> x = Uniform(4 * size);
  const std::vector<float> weight = Uniform(size);
  const RmsNormArgs args{
      .x_stride = size, .rows = 4, .size = size, .eps = 1e-5f, .out_stride = size};
  const std::vector<float> together = Run(args, x, weight);
  for (size_t row = 0; row < 4; ++row) {
    RmsNormArgs one = args;
    one.rows = 1;
    const std::vector<float> alone =
        Run(one, {x.begin() + row * size, x.begin() + (row + 1) * size}, weight);
    for (size_t i = 0; i < size; ++i) ASSERT_EQ(alone[i], together[row * size + i]);
  }
}

TEST_F(RmsNormCudaTest, AHeadHasTheBitsOfARowOfItsSize) {
  constexpr size_t kRows = 2;
  constexpr size_t kHeads = 3;
  for (const size_t size : {8, 128, 300}) {
    const size_t stride = kHeads * size + 4;
    const std::vector<float> x = Uniform(kRows * stride);
    const std::vector<float> weight = Uniform(size);
    RmsNormArgs args{.x_stride = stride,
                     .rows = kRows,
                     .num_heads = kHeads,
                     .size = size,
                     .eps = 1e-6f,
                     .out_stride = stride};
    const std::vector<float> heads = Run(args, x, weight);
    args.num_heads = 1;
    for (size_t row = 0; row < kRows; ++row) {
      EXPECT_EQ(heads[row * stride + kHeads * size], kGap);
      for (size_t head = 0; head < kHeads; ++head) {
        const auto begin = x.begin() + static_cast<ptrdiff_t>(row * stride + head * size);
        RmsNormArgs one = args;
        one.rows = 1;
        const std::vector<float> alone =
            Run(one, {begin, begin + static_cast<ptrdiff_t>(size)}, weight);
        for (size_t i = 0; i < size; ++i) {
          ASSERT_EQ(alone[i], heads[row * stride + head * size + i]) << size << " at " << i;
        }
      }
    }
  }
}

class LayerCudaTest : public DeviceTest {};

TEST_F(LayerCudaTest, RopeEqualsTheReferenceToRounding) {
  const size_t rows = 3;
  const size_t heads = 5;
  for (const size_t head_size : {2, 32, 64, 128}) {
    const size_t positions = 40;
    std::vector<float> table(positions * head_size);
    for (size_t p = 0; p < positions; ++p) {
      for (size_t d = 0; d < head_size / 2; ++d) {
        const double angle = p * std::pow(10000.0, -2.0 * d / head_size);
        table[p * head_size + d] = static_cast<float>(std::cos(angle));
        table[p * head_size + head_size / 2 + d] = static_cast<float>(std::sin(angle));
      }
    }
    const std::vector<int32_t> where = {39, 0, 7};
    std::vector<float> want = Uniform(rows * (heads * head_size + 2));
    RopeArgs args{.x_stride = heads * head_size + 2,
                  .rows = rows,
                  .num_heads = heads,
                  .head_size = head_size};
    float* const x = Upload(want);
    args.x = x;
    args.positions = Upload(where);
    args.table = Upload(table);
    ASSERT_TRUE(Rope(args, stream()).ok());
    const std::vector<float> got = Download(x, want.size());
    args.x = want.data();
    args.positions = where.data();
    args.table = table.data();
    RopeReference(args);
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(got[i], want[i], 1e-6) << head_size << " at " << i;
  }
}

TEST_F(LayerCudaTest, SwiGluEqualsTheReferenceToRounding) {
  const size_t rows = 3;
  for (const size_t size : {1, 255, 257, 600}) {
    std::vector<float> want = Uniform(rows * (size + 1), -30, 30);
    const std::vector<float> up = Uniform(rows * (size + 2));
    float* const gate = Upload(want);
    SwiGluArgs args{.gate = gate,
                    .gate_stride = size + 1,
                    .up = Upload(up),
                    .up_stride = size + 2,
                    .rows = rows,
                    .size = size};
    ASSERT_TRUE(SwiGlu(args, stream()).ok());
    const std::vector<float> got = Download(gate, want.size());
    args.gate = want.data();
    args.up = up.data();
    SwiGluReference(args);
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(got[i], want[i], 2e-6 * std::abs(want[i]) + 1e-12) << size << " at " << i;
  }
}

TEST_F(LayerCudaTest, EmbeddingIsExactForEveryBitPattern) {
  // The table has all 65,536 patterns of two bytes. A NaN only has to stay NaN.
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    std::vector<uint16_t> table(65536);
    std::iota(table.begin(), table.end(), uint16_t{0});
    const size_t size = 256;
    std::vector<int32_t> ids(256);
    std::iota(ids.begin(), ids.end(), 0);
    EmbedArgs args{.dtype = dtype, .size = size, .rows = ids.size(), .out_stride = size};
    float* const out = Upload(std::vector<float>(table.size()));
    args.table = Upload(table);
    args.ids = Upload(ids);
    args.out = out;
    ASSERT_TRUE(Embed(args, stream()).ok());
    const std::vector<float> got = Download(out, table.size());
    std::vector<float> want(table.size());
    args.table = table.data();
    args.ids = ids.data();
    args.out = want.data();
    EmbedReference(args);
    for (size_t i = 0; i < table.size(); ++i) {
      if (std::isnan(want[i])) {
        ASSERT_TRUE(std::isnan(got[i])) << Name(dtype) << " " << i;
      } else {
        ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i]))
            << Name(dtype) << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace tandem
