// Runs the algorithm of kernels/amx/matmul_amx_inl.h with tiles in software, so that a CPU with
// AVX-512 and without AMX checks it too. On a CPU with AMX it also compares the units with the
// software, bit for bit.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/amx/matrix_units.h"
#include "kernels/matmul.h"
#include "kernels/thread_pool.h"

#if defined(__x86_64__)
#include "kernels/amx/matmul_amx_inl.h"
#include "kernels/amx/tiles.h"

namespace tandem {
namespace {

float Flushed(float value) { return std::abs(value) < 0x1p-126F ? 0.0F : value; }

// TDPBF16PS as Intel describes it (SDM, volume 2): see amx::Tiles::Dot.
class SoftwareTiles {
 public:
  template <int kTo>
  void Zero() {
    tiles_[kTo].fill(0);
  }
  template <int kTo>
  void Load(const void* from, size_t stride) {
    for (size_t row = 0; row < amx::kTileRows; ++row) {
      std::memcpy(&tiles_[kTo][row * amx::kTileRowBytes],
                  static_cast<const uint8_t*>(from) + row * stride, amx::kTileRowBytes);
    }
  }
  template <int kFrom>
  void Store(void* to, size_t stride) {
    for (size_t row = 0; row < amx::kTileRows; ++row) {
      std::memcpy(static_cast<uint8_t*>(to) + row * stride,
                  &tiles_[kFrom][row * amx::kTileRowBytes], amx::kTileRowBytes);
    }
  }
  template <int kSum, int kA, int kB>
  void Dot() {
    const std::array<float, 512> a = Floats(kA);
    const std::array<float, 512> b = Floats(kB);
    for (size_t m = 0; m < 16; ++m) {
      for (size_t n = 0; n < 16; ++n) {
        float even = 0;
        float odd = 0;
        for (size_t k = 0; k < 16; ++k) {
          even = Flushed(std::fma(a[m * 32 + 2 * k], b[k * 32 + 2 * n], even));
          odd = Flushed(std::fma(a[m * 32 + 2 * k + 1], b[k * 32 + 2 * n + 1], odd));
        }
        uint8_t* at = &tiles_[kSum][(m * 16 + n) * sizeof(float)];
        float sum;
        std::memcpy(&sum, at, sizeof(sum));
        sum = Flushed(sum + Flushed(even + odd));
        std::memcpy(at, &sum, sizeof(sum));
      }
    }
  }

 private:
  // The BF16 numbers of a tile, [16, 32].
  std::array<float, 512> Floats(size_t tile) const {
    std::array<uint16_t, 512> bits;
    std::memcpy(bits.data(), tiles_[tile].data(), sizeof(bits));
    std::array<float, 512> floats;
    for (size_t i = 0; i < floats.size(); ++i) {
      floats[i] = Flushed(std::bit_cast<float>(static_cast<uint32_t>(bits[i]) << 16));
    }
    return floats;
  }

  std::array<std::array<uint8_t, amx::kTileBytes>, amx::kTileRegisters> tiles_ = {};
};

struct Shape {
  size_t rows;
  size_t in_features;
  size_t out_features;
};

class MatMulAmxTest : public ::testing::TestWithParam<Shape> {
 protected:
  void SetUp() override {
    if (__builtin_cpu_supports("avx512bw") == 0 || __builtin_cpu_supports("avx512vl") == 0) {
      GTEST_SKIP() << "the algorithm needs AVX-512";
    }
    const auto [rows, in_features, out_features] = GetParam();
    std::mt19937 random(7);
    std::uniform_real_distribution<float> uniform(-1, 1);
    x_.resize(rows * in_features);
    for (float& value : x_) value = uniform(random);
    w_.resize(in_features * out_features);
    for (uint16_t& bits : w_) {
      bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(uniform(random)) >> 16);
    }
    bias_.assign(out_features, 0.5F);
  }

  MatMulArgs Args(std::vector<float>& out) const {
    const auto [rows, in_features, out_features] = GetParam();
    out.assign(rows * out_features, 1.0F);
    return {.x = x_.data(),
            .x_stride = in_features,
            .rows = rows,
            .w = w_.data(),
            .dtype = DType::kBF16,
            .out_features = out_features,
            .in_features = in_features,
            .bias = bias_.data(),
            .out = out.data(),
            .out_stride = out_features,
            .add_to_out = true};
  }

  ThreadPool pool_{2};
  std::vector<float> x_;
  std::vector<uint16_t> w_;
  std::vector<float> bias_;
};

// 2100 numbers are two panels and a partial step, and 530 rows are two blocks.
INSTANTIATE_TEST_SUITE_P(Shapes, MatMulAmxTest,
                         ::testing::Values(Shape{1, 32, 16}, Shape{1, 45, 37}, Shape{3, 64, 16},
                                           Shape{5, 100, 50}, Shape{6, 31, 20}, Shape{16, 70, 33},
                                           Shape{17, 2100, 21}, Shape{40, 96, 300},
                                           Shape{530, 33, 18}));

TEST_P(MatMulAmxTest, SoftwareTilesAreNearTheReference) {
  std::vector<float> got;
  const MatMulArgs args = Args(got);
  amx::MatMul<SoftwareTiles>({&args, 1}, pool_);
  std::vector<float> want;
  MatMulReference(Args(want));
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], 3e-5)
        << "row " << i / args.out_features << ", out feature " << i % args.out_features;
  }
}

TEST_P(MatMulAmxTest, ARowHasTheSameBitsAlone) {
  std::vector<float> together;
  const MatMulArgs args = Args(together);
  amx::MatMul<SoftwareTiles>({&args, 1}, pool_);
  std::vector<float> alone;
  MatMulArgs row = Args(alone);
  row.rows = 1;
  for (size_t m = 0; m < args.rows; m += 1 + args.rows / 8) {
    row.x = args.x + m * args.x_stride;
    row.out = alone.data() + m * args.out_stride;
    amx::MatMul<SoftwareTiles>({&row, 1}, pool_);
    ASSERT_EQ(std::memcmp(row.out, args.out + m * args.out_stride, args.out_stride * sizeof(float)),
              0)
        << "row " << m;
  }
}

TEST_P(MatMulAmxTest, TheUnitsGiveTheBitsOfTheSoftware) {
  if (!HasMatrixUnits()) GTEST_SKIP() << "this CPU has no AMX, or the system does not allow it";
  // Weights and activations that are subnormal, and products that become subnormal
  w_[0] = 0x0001;
  w_[1] = 0x8040;
  x_[2 % x_.size()] = 1e-39F;
  x_[3 % x_.size()] = 3e-38F;
  std::vector<float> software;
  const MatMulArgs args = Args(software);
  amx::MatMul<SoftwareTiles>({&args, 1}, pool_);
  std::vector<float> units;
  const MatMulArgs same = Args(units);
  amx::MatMul<amx::Tiles>({&same, 1}, pool_);
  EXPECT_EQ(std::memcmp(units.data(), software.data(), units.size() * sizeof(float)), 0);
}

}  // namespace
}  // namespace tandem
#endif
