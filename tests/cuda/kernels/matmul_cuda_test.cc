#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernels/matmul.h"
#include "tests/cuda/kernels/bf16_parts.h"
#include "tests/cuda/kernels/device_test.h"

namespace tandem {
namespace {

class MatMulCudaTest : public testing::DeviceTest {
 protected:
  // Returns the bytes of random weights of any type.
  std::vector<uint8_t> Weights(DType dtype, size_t count) {
    std::vector<uint8_t> bytes(count * SizeOf(dtype));
    for (size_t i = 0; i < count; ++i) {
      const float value = std::uniform_real_distribution<float>(-1, 1)(random_);
      uint32_t bits = std::bit_cast<uint32_t>(value);
      if (dtype == DType::kBF16) bits >>= 16;
      if (dtype == DType::kF16)
        bits = (bits >> 31 << 15) | (14u << 10) | (bits & 0x3FF);  // 0.5 to 1
      std::memcpy(&bytes[i * SizeOf(dtype)], &bits, SizeOf(dtype));
    }
    return bytes;
  }

  struct Case {
    DType dtype;
    size_t rows, in_features, out_features;
    bool with_bias = false;
    bool adds = false;
    int num_parts = kMostBf16Parts;  // parts of x, if the weights are BF16
  };

  // Computes `rows` rows of the case, beginning with `first`. Rows of x and out have gaps.
  std::vector<float> Run(const Case& c, const std::vector<float>& x, const std::vector<uint8_t>& w,
                         const std::vector<float>& bias, const std::vector<float>& before,
                         size_t first, size_t rows) {
    MatMulArgs args = Args(c);
    args.rows = rows;
    args.w = Upload(w);
    if (c.dtype == DType::kBF16) {
      args.x_bf16 = Bf16Rows{.parts = Upload(testing::Bf16PartsOf(x, c.num_parts)),
                             .stride = args.x_stride,
                             .part_stride = x.size(),
                             .num_parts = c.num_parts}
                        .FromRow(first);
    } else {
      args.x = Upload(x) + first * args.x_stride;
    }
    if (c.with_bias) args.bias = Upload(bias);
    float* const out = Upload(before);
    args.out = out + first * args.out_stride;
    const absl::Status status = MatMul(args, stream());
    EXPECT_TRUE(status.ok()) << status;
    return Download(out, before.size());
  }

  static MatMulArgs Args(const Case& c) {
    return {.x_stride = c.in_features + 8,
            .rows = c.rows,
            .dtype = c.dtype,
            .out_features = c.out_features,
            .in_features = c.in_features,
            .out_stride = c.out_features + 3,
            .add_to_out = c.adds};
  }
};

TEST_F(MatMulCudaTest, EqualsTheReferenceToRounding) {
  const std::vector<Case> cases = {
      {DType::kBF16, 1, 8, 1},
      {DType::kBF16, 1, 264, 5, true},
      {DType::kBF16, 2, 2048, 7, true, true},
      {DType::kF16, 3, 512, 33},
      {DType::kF32, 5, 256, 31, true},
      {DType::kBF16, 8, 4096, 6},
      {DType::kF32, 9, 72, 4, true},
      {DType::kF16, 17, 128, 9, true, true},
      {DType::kBF16, 1, 64, 4098},
      {DType::kBF16, 1, 16, 16390},
      {DType::kBF16, 17, 520, 40, false, true},
      {DType::kBF16, 33, 72, 20, true},
      {DType::kBF16, 70, 40, 130, true, true},
      {DType::kBF16, 65, 296, 65},
      {DType::kBF16, 3, 1032, 20, true, true, 1},
      {DType::kBF16, 12, 200, 33, false, false, 1},
      {DType::kBF16, 20, 520, 40, false, true, 1},
      {DType::kBF16, 40, 72, 20, true, false, 1},
      {DType::kBF16, 66, 1096, 70, true, true, 1},
  };
  for (const Case& c : cases) {
    const std::vector<float> x = Uniform(c.rows * (c.in_features + 8));
    const std::vector<uint8_t> w = Weights(c.dtype, c.in_features * c.out_features);
    const std::vector<float> bias = Uniform(c.out_features);
    std::vector<float> want = Uniform(c.rows * (c.out_features + 3));
    const std::vector<float> got = Run(c, x, w, bias, want, 0, c.rows);
    MatMulArgs args = Args(c);
    std::vector<float> rounded = x;
    if (c.num_parts == 1) std::transform(x.begin(), x.end(), rounded.begin(), testing::NearestBf16);
    args.x = rounded.data();
    args.w = w.data();
    if (c.with_bias) args.bias = bias.data();
    args.out = want.data();
    MatMulReference(args);
    // Matrix units truncate where other units round. They do so for three parts of each sixteen
    // products, always in one direction.
    const double cut_off = c.dtype == DType::kBF16 ? 3 : 1;
    const double tolerance =
        cut_off * 3e-7 * std::sqrt(static_cast<double>(c.in_features)) * 4 + 1e-6;
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], tolerance)
          << Name(c.dtype) << " " << c.rows << " x " << c.in_features << " x " << c.out_features
          << " at " << i;
    }
  }
}

TEST_F(MatMulCudaTest, ARowHasTheSameBitsAloneAndAmongOthers) {
  // The numbers of features make the kernels split their work in each of their ways.
  for (const Case& c :
       {Case{DType::kBF16, 70, 520, 40}, Case{DType::kBF16, 70, 1096, 33, false, false, 1},
        Case{DType::kBF16, 34, 72, 4100}, Case{DType::kF16, 11, 520, 40},
        Case{DType::kF32, 3, 264, 4100}}) {
    const std::vector<float> x = Uniform(c.rows * (c.in_features + 8));
    const std::vector<uint8_t> w = Weights(c.dtype, c.in_features * c.out_features);
    const size_t stride = c.out_features + 3;
    const std::vector<float> before(c.rows * stride);
    const std::vector<float> together = Run(c, x, w, {}, before, 0, c.rows);
    for (const size_t rows : {1, 2, 5, 8, 9, 16, 17, 33, 64}) {
      if (rows >= c.rows) break;
      const size_t first = c.rows - rows - 1;
      const std::vector<float> apart = Run(c, x, w, {}, before, first, rows);
      for (size_t i = first * stride; i < (first + rows) * stride; ++i) {
        ASSERT_EQ(apart[i], together[i]) << c.out_features << ": " << rows << " rows, at " << i;
      }
    }
  }
}

// The three parts of x add up to x, even for the smallest and the largest parts.
TEST_F(MatMulCudaTest, Bf16WeightsLoseNothingOfX) {
  for (const size_t rows : {1, 40}) {
    const Case c{DType::kBF16, rows, 64, 3};
    std::vector<float> x(c.rows * (c.in_features + 8));
    std::vector<uint8_t> w(c.in_features * c.out_features * 2);
    // Each row has one product, so the result is x itself.
    const float values[] = {1.0f + 0x1p-23f, -3.14159274f, 0x1.fffffep+100f, 0x1.234566p-90f, 0.0f};
    for (size_t row = 0; row < rows; ++row) {
      x[row * (c.in_features + 8) + (7 * row + 5) % 64] = values[row % 5];
    }
    for (size_t i = 0; i < w.size(); i += 2) {
      w[i] = 0x80;
      w[i + 1] = 0x3F;  // 1
    }
    const std::vector<float> got =
        Run(c, x, w, {}, std::vector<float>(rows * (c.out_features + 3)), 0, rows);
    for (size_t row = 0; row < rows; ++row) {
      for (size_t i = 0; i < c.out_features; ++i) {
        ASSERT_EQ(got[row * (c.out_features + 3) + i], values[row % 5]) << "row " << row;
      }
    }
  }
}

TEST_F(MatMulCudaTest, ValuesThatAreNotFiniteStayInTheirRow) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -INFINITY, std::bit_cast<float>(0x7F800001u)}) {
    for (const size_t rows : {8, 40}) {
      const Case c{DType::kBF16, rows, 64, 20};
      std::vector<float> x = Uniform(c.rows * (c.in_features + 8));
      const std::vector<uint8_t> w = Weights(c.dtype, c.in_features * c.out_features);
      const std::vector<float> before(rows * (c.out_features + 3));
      const std::vector<float> want = Run(c, x, w, {}, before, 0, rows);
      x[3 * (c.in_features + 8) + 17] = bad;
      const std::vector<float> got = Run(c, x, w, {}, before, 0, rows);
      for (size_t row = 0; row < rows; ++row) {
        for (size_t i = 0; i < c.out_features; ++i) {
          const size_t at = row * (c.out_features + 3) + i;
          if (row == 3) {
            ASSERT_FALSE(std::isfinite(got[at]));
          } else {
            ASSERT_EQ(got[at], want[at]) << "row " << row;
          }
        }
      }
    }
  }
}

TEST_F(MatMulCudaTest, RefusesInputsThatItsVectorLoadsCannotRead) {
  MatMulArgs args = Args({DType::kF32, 1, 12, 4});
  args.x = Upload(Uniform(16));
  args.w = Upload(Weights(DType::kF32, 48));
  args.out = Upload(Uniform(8));
  EXPECT_EQ(MatMul(args, stream()).code(), absl::StatusCode::kInvalidArgument);
  args.in_features = 8;
  EXPECT_TRUE(MatMul(args, stream()).ok());
  args.x += 1;
  EXPECT_EQ(MatMul(args, stream()).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(MatMulCudaTest, RefusesBf16RowsThatItsVectorLoadsCannotRead) {
  MatMulArgs args = Args({DType::kBF16, 1, 8, 4});
  args.w = Upload(Weights(DType::kBF16, 32));
  args.out = Upload(Uniform(8));
  EXPECT_EQ(MatMul(args, stream()).code(), absl::StatusCode::kInvalidArgument) << "none";
  const Bf16Rows good = {.parts = Upload(std::vector<uint16_t>(64)), .stride = 8, .part_stride = 8};
  args.x_bf16 = good;
  EXPECT_TRUE(MatMul(args, stream()).ok());
  for (const Bf16Rows& bad : {Bf16Rows{good.parts + 1, 8, 8, 1}, Bf16Rows{good.parts, 12, 8, 1},
                              Bf16Rows{good.parts, 8, 4, 3}, Bf16Rows{good.parts, 8, 8, 2}}) {
    args.x_bf16 = bad;
    EXPECT_EQ(MatMul(args, stream()).code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace tandem
