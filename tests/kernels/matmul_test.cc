#include "kernels/matmul.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "hwy/highway.h"
#include "hwy/targets.h"
#include "kernels/amx/matrix_units.h"
#include "kernels/cpu.h"
#include "kernels/support/activation_precision.h"
#include "kernels/support/read_order.h"

namespace tandem {
namespace {

constexpr std::array kAllDTypes = {DType::kF32, DType::kBF16, DType::kF16};

// Returns the nearest BF16 number, of two the one with an even last bit.
float NearestBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const float below = std::bit_cast<float>(bits & 0xFFFF0000U);  // towards zero
  const float above = std::bit_cast<float>((bits & 0xFFFF0000U) + 0x10000U);
  const float to_below = std::abs(value - below);
  const float to_above = std::abs(above - value);
  if (to_below != to_above) return to_below < to_above ? below : above;
  return (bits & 0x10000U) == 0 ? below : above;
}

// All inputs of a product, made from a seed. x and W start at odd addresses. Rows of x and out have
// gaps.
class Product {
 public:
  Product(DType dtype, size_t rows, size_t in_features, size_t out_features, uint64_t seed = 1)
      : random_(seed), out_stride_(out_features + 3) {
    x_.resize(1 + rows * (in_features + 5));
    for (float& value : x_) value = Uniform();
    w_.resize(1 + in_features * out_features * SizeOf(dtype));
    for (size_t i = 0; i < in_features * out_features; ++i) PutWeight(dtype, i);
    bias_.resize(out_features);
    for (float& value : bias_) value = Uniform();
    out_.resize(rows * out_stride_);
    for (float& value : out_) value = Uniform();
    args_ = {.x = x_.data() + 1,
             .x_stride = in_features + 5,
             .rows = rows,
             .w = w_.data() + 1,
             .dtype = dtype,
             .out_features = out_features,
             .in_features = in_features,
             .bias = nullptr,
             .out = out_.data(),
             .out_stride = out_stride_,
             .add_to_out = false};
  }

  const MatMulArgs& args() const { return args_; }
  MatMulArgs& mutable_args() { return args_; }
  const float* bias() const { return bias_.data(); }
  // The contents of out before a run. Runs write into copies of it.
  const std::vector<float>& initial_out() const { return out_; }
  size_t out_stride() const { return out_stride_; }

  std::vector<float> Run(ThreadPool& pool) const { return RunRows(pool, 0, args_.rows); }

  // Computes only rows [begin, begin + count). The other rows of the result do not change.
  std::vector<float> RunRows(ThreadPool& pool, size_t begin, size_t count) const {
    std::vector<float> out = out_;
    MatMulArgs args = args_;
    args.x += begin * args.x_stride;
    args.rows = count;
    args.out = out.data() + begin * out_stride_;
    MatMul({&args, 1}, pool);
    return out;
  }

  std::vector<float> Reference() const {
    std::vector<float> out = out_;
    MatMulArgs args = args_;
    std::vector<float> rounded = x_;
    if (RoundsActivations() && args.dtype == DType::kBF16) {
      for (float& value : rounded) value = NearestBf16(value);
      args.x = rounded.data() + 1;
    }
    args.out = out.data();
    MatMulReference(args);
    return out;
  }

  float Weight(size_t n, size_t k) const {
    const size_t index = n * args_.in_features + k;
    const uint8_t* at = static_cast<const uint8_t*>(args_.w) + index * SizeOf(args_.dtype);
    if (args_.dtype == DType::kF32) {
      float value;
      std::memcpy(&value, at, sizeof(value));
      return value;
    }
    uint16_t bits;
    std::memcpy(&bits, at, sizeof(bits));
    if (args_.dtype == DType::kBF16) {
      return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
    }
    // This is exact for normal and subnormal halves. The exponent's bias moves from 15 to 127.
    const auto magnitude = std::bit_cast<float>(static_cast<uint32_t>(bits & 0x7fff) << 13);
    return ((bits & 0x8000) != 0 ? -magnitude : magnitude) * 0x1p112F;
  }

 private:
  float Uniform() { return std::uniform_real_distribution<float>(-1, 1)(random_); }

  void PutWeight(DType dtype, size_t index) {
    uint8_t* at = w_.data() + 1 + index * SizeOf(dtype);
    if (dtype == DType::kF32) {
      const float value = Uniform();
      std::memcpy(at, &value, sizeof(value));
      return;
    }
    uint16_t bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(Uniform()) >> 16);
    if (dtype == DType::kF16) {
      // The weight is any half below 2, subnormal halves included.
      bits = static_cast<uint16_t>(random_() & 0xbfff);
    }
    std::memcpy(at, &bits, sizeof(bits));
  }

  std::mt19937_64 random_;
  size_t out_stride_;
  std::vector<float> x_;
  std::vector<uint8_t> w_;
  std::vector<float> bias_;
  std::vector<float> out_;
  MatMulArgs args_;
};

// Checks that |got - reference| is within the error bound of an F32 sum, and that the gaps between
// rows are untouched.
void ExpectNearReference(const Product& product, const std::vector<float>& got) {
  const MatMulArgs& args = product.args();
  const std::vector<float> want = product.Reference();
  ASSERT_EQ(got.size(), want.size());
  for (size_t m = 0; m < args.rows; ++m) {
    for (size_t n = 0; n < product.out_stride(); ++n) {
      const size_t at = m * product.out_stride() + n;
      if (n >= args.out_features) {
        ASSERT_EQ(got[at], want[at]) << "the product wrote beyond row " << m;
        continue;
      }
      // The standard bound for a sum of products, with |x| <= 1 and the magnitudes of this row of
      // W.
      double magnitude = 2;
      for (size_t k = 0; k < args.in_features; ++k) {
        magnitude += std::abs(product.Weight(n, k) * args.x[m * args.x_stride + k]);
      }
      const double terms = static_cast<double>(args.in_features) / 4 + 16;
      ASSERT_NEAR(got[at], want[at], magnitude * std::min(terms, 200.0) * 0x1p-24)
          << "row " << m << " of " << args.rows << ", out feature " << n << " of "
          << args.out_features << ", in_features " << args.in_features << ", " << Name(args.dtype);
    }
  }
}

bool SameBits(const float* a, const float* b, size_t count) {
  return std::memcmp(a, b, count * sizeof(float)) == 0;
}

// An instruction set of this machine, with or without the matrix units or rounded activations, and
// an order of reads.
struct Units {
  int64_t target;
  bool matrix_units = false;
  bool rounds_activations = false;
  ReadOrder order = ReadOrder::kSomeRowsTogether;
};

// Runs each test once for each instruction set that was compiled in and that this machine has, and
// once more with the matrix units and with rounded activations. AVX-512 also runs with both orders
// of reads.
class MatMulTest : public ::testing::TestWithParam<Units> {
 protected:
  void SetUp() override {
    hwy::SetSupportedTargetsForTest(GetParam().target);
    AllowMatrixUnits(GetParam().matrix_units);
    RoundActivations(GetParam().rounds_activations);
    ForceReadOrder(GetParam().order);
  }
  void TearDown() override {
    hwy::SetSupportedTargetsForTest(0);
    AllowMatrixUnits(false);
    RoundActivations(false);
    ForceReadOrder(std::nullopt);
  }

  ThreadPool pool_{3};
};

std::vector<Units> UsableUnits() {
  std::vector<Units> usable;
  for (int64_t left = hwy::SupportedTargets() & HWY_TARGETS; left != 0; left &= left - 1) {
    const int64_t target = left & -left;
    usable.push_back({.target = target});
    // Only AVX-512 has the second order, and the units are used with AVX-512 only.
    if (!std::string(hwy::TargetName(target)).starts_with("AVX3")) continue;
    usable.push_back({.target = target, .order = ReadOrder::kRowAfterRow});
    if (HasMatrixUnits()) usable.push_back({.target = target, .matrix_units = true});
    if (!HasBf16Products()) continue;
    for (const ReadOrder order : {ReadOrder::kSomeRowsTogether, ReadOrder::kRowAfterRow}) {
      usable.push_back({.target = target, .rounds_activations = true, .order = order});
    }
  }
  return usable;
}

std::string NameOf(const Units& units) {
  return std::string(hwy::TargetName(units.target)) + (units.matrix_units ? "_AMX" : "") +
         (units.rounds_activations ? "_BF16" : "") +
         (units.order == ReadOrder::kRowAfterRow ? "_RowAfterRow" : "");
}

INSTANTIATE_TEST_SUITE_P(Targets, MatMulTest, ::testing::ValuesIn(UsableUnits()),
                         [](const auto& units) { return NameOf(units.param); });

TEST_P(MatMulTest, IsNearTheReferenceForAnyRowCount) {
  for (const DType dtype : kAllDTypes) {
    for (const size_t rows :
         {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 33, 64, 130, 193}) {
      const Product product(dtype, rows, 83, 37, rows);
      ExpectNearReference(product, product.Run(pool_));
    }
  }
}

TEST_P(MatMulTest, IsNearTheReferenceForAnyInFeatures) {
  for (const DType dtype : kAllDTypes) {
    for (const size_t in_features : {1,  2,  3,  7,  8,  9,   15,  16,   17,   31,   32,
                                     33, 47, 63, 64, 65, 255, 256, 1023, 1024, 1025, 2080}) {
      for (const size_t rows : {1, 5, 20}) {
        const Product product(dtype, rows, in_features, 9, in_features);
        ExpectNearReference(product, product.Run(pool_));
      }
    }
  }
}

TEST_P(MatMulTest, IsNearTheReferenceForAnyOutFeatures) {
  for (const DType dtype : kAllDTypes) {
    for (const size_t out_features : {0, 1, 2, 3, 4, 5, 11, 12, 13, 29, 30, 31, 32, 33, 61, 100}) {
      for (const size_t rows : {1, 3, 21}) {
        const Product product(dtype, rows, 40, out_features, out_features);
        ExpectNearReference(product, product.Run(pool_));
      }
    }
  }
}

TEST_P(MatMulTest, IsNearTheReferenceForALargeProduct) {
  for (const DType dtype : kAllDTypes) {
    for (const size_t rows : {2, 40}) {
      const Product product(dtype, rows, 2048, 300);
      ExpectNearReference(product, product.Run(pool_));
    }
  }
}

TEST_P(MatMulTest, AddsBiasAndResidual) {
  for (const DType dtype : kAllDTypes) {
    for (const size_t rows : {1, 6, 50}) {
      for (const bool with_bias : {false, true}) {
        for (const bool add_to_out : {false, true}) {
          Product product(dtype, rows, 70, 35);
          if (with_bias) product.mutable_args().bias = product.bias();
          product.mutable_args().add_to_out = add_to_out;
          ExpectNearReference(product, product.Run(pool_));
        }
      }
    }
  }
}

// The most important property: a row has the same bits alone, in any group of rows, and at any
// place in the group. It holds for few rows and for blocks of many rows. 1100 features are several
// pieces and a partial step, 205 rows meet a panel in two groups, and 530 rows are packed in two
// blocks.
TEST_P(MatMulTest, ARowHasTheSameBitsInAnyBatch) {
  constexpr size_t kRows = 530;
  for (const DType dtype : kAllDTypes) {
    for (const bool add : {false, true}) {
      Product product(dtype, kRows, 1100, 38);
      if (add) {
        product.mutable_args().bias = product.bias();
        product.mutable_args().add_to_out = true;
      }
      const size_t stride = product.out_stride();
      std::vector<float> alone(kRows * stride);
      for (size_t row = 0; row < kRows; ++row) {
        const std::vector<float> out = product.RunRows(pool_, row, 1);
        std::copy_n(out.begin() + static_cast<ptrdiff_t>(row * stride), stride,
                    alone.begin() + static_cast<ptrdiff_t>(row * stride));
      }
      for (const size_t count :
           {2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 16, 17, 24, 25, 64, 95, 96, 97, 205, 530}) {
        for (size_t begin = 0; begin + count <= kRows; begin += std::max<size_t>(count / 2, 17)) {
          const std::vector<float> out = product.RunRows(pool_, begin, count);
          for (size_t row = begin; row < begin + count; ++row) {
            ASSERT_TRUE(SameBits(&out[row * stride], &alone[row * stride], stride))
                << Name(dtype) << ": row " << row << " in " << count << " rows from " << begin;
          }
        }
      }
    }
  }
}

TEST_P(MatMulTest, ARowHasTheSameBitsInAnyBatchOfALongProduct) {
  // Several pieces of k, also of rounded activations.
  constexpr size_t kRows = 98;
  for (const DType dtype : kAllDTypes) {
    const Product product(dtype, kRows, 4500, 42);
    const size_t stride = product.out_stride();
    std::vector<float> alone;
    for (size_t row = 0; row < kRows; ++row) {
      const std::vector<float> out = product.RunRows(pool_, row, 1);
      alone.insert(alone.end(), out.begin() + static_cast<ptrdiff_t>(row * stride),
                   out.begin() + static_cast<ptrdiff_t>((row + 1) * stride));
    }
    for (const size_t count : {2, 5, 7, 8, 13, 24, 50, 96, 97, 98}) {
      const std::vector<float> out = product.RunRows(pool_, 0, count);
      ASSERT_TRUE(SameBits(out.data(), alone.data(), count * stride))
          << Name(dtype) << ": " << count << " rows";
    }
  }
}

TEST_P(MatMulTest, AnyNumberOfThreadsGivesTheSameBits) {
  for (const DType dtype : kAllDTypes) {
    for (const size_t rows : {1, 4, 16, 100}) {
      const Product product(dtype, rows, 600, 700);
      ThreadPool one(1);
      const std::vector<float> want = product.Run(one);
      for (const int threads : {2, 3, 5}) {
        ThreadPool pool(threads);
        const std::vector<float> got = product.Run(pool);
        ASSERT_TRUE(SameBits(got.data(), want.data(), want.size()))
            << Name(dtype) << ", " << rows << " rows, " << threads << " threads";
      }
    }
  }
}

TEST_P(MatMulTest, ProductsOfOneCallDoNotChangeEachOther) {
  // Some products share x (with one or two orders of packing), one has its own x, and one is empty.
  // The row counts differ.
  const Product a(DType::kBF16, 20, 130, 50, 1);
  const Product b(DType::kF32, 20, 130, 21, 2);
  const Product c(DType::kF16, 3, 64, 300, 3);
  const Product empty(DType::kBF16, 0, 64, 8, 4);
  std::vector<MatMulArgs> products = {a.args(), b.args(), a.args(), empty.args(), c.args()};
  std::vector<std::vector<float>> outs = {a.initial_out(), b.initial_out(), a.initial_out(),
                                          empty.initial_out(), c.initial_out()};
  products[1].x = a.args().x;
  for (size_t i = 0; i < products.size(); ++i) products[i].out = outs[i].data();
  MatMul(products, pool_);

  EXPECT_EQ(outs[0], a.Run(pool_));
  EXPECT_EQ(outs[2], a.Run(pool_));
  EXPECT_EQ(outs[4], c.Run(pool_));
  std::vector<float> b_alone = b.initial_out();
  MatMulArgs b_args = products[1];
  b_args.out = b_alone.data();
  MatMul({&b_args, 1}, pool_);
  EXPECT_EQ(outs[1], b_alone);
  MatMul({}, pool_);
}

TEST_P(MatMulTest, NeverReadsPastTheWeights) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (const DType dtype : kAllDTypes) {
    for (const size_t rows : {1, 2, 20}) {
      Product product(dtype, rows, 45, 7);
      const size_t bytes = 45 * 7 * SizeOf(dtype);
      auto* pages = static_cast<uint8_t*>(
          mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
      ASSERT_NE(pages, MAP_FAILED);
      ASSERT_EQ(mprotect(pages + page, page, PROT_NONE), 0);
      const std::vector<float> want = product.Run(pool_);
      product.mutable_args().w =
          std::memcpy(pages + page - bytes, product.args().w, bytes);  // ends with the page
      EXPECT_EQ(product.Run(pool_), want);
      munmap(pages, 2 * page);
    }
  }
}

TEST_P(MatMulTest, PassesOnInfinityAndNan) {
  for (const size_t rows : {3, 20}) {
    Product product(DType::kF32, rows, 40, 5);
    std::vector<float> x(rows * 40, 1.0F);
    x[3] = INFINITY;
    x[40 + 39] = NAN;
    product.mutable_args().x = x.data();
    product.mutable_args().x_stride = 40;
    const std::vector<float> out = product.Run(pool_);
    EXPECT_TRUE(std::isinf(out[0]));
    EXPECT_TRUE(std::isnan(out[product.out_stride()]));
    EXPECT_TRUE(std::isfinite(out[(rows - 1) * product.out_stride()])) << "a row of finite numbers";
  }
}

// Returns the sum in the order that kernels/matmul.h promises, with scalar operations.
//   lanes  number of lanes of a vector
//   fused  whether the instruction set multiplies and adds with one rounding
float SumInOrder(const Product& product, size_t m, size_t n, size_t lanes, bool fused) {
  const MatMulArgs& args = product.args();
  std::vector<float> sums(lanes, 0.0F);
  const size_t padded = (args.in_features + 2 * lanes - 1) / (2 * lanes) * 2 * lanes;
  for (size_t i = 0; i < padded; ++i) {
    const size_t lane = i % lanes;
    const size_t half = i / lanes % 2;
    const size_t step = i / (2 * lanes) * 2 * lanes;
    const size_t k = args.dtype == DType::kBF16 ? step + 2 * lane + half : i;
    const float x = k < args.in_features ? args.x[m * args.x_stride + k] : 0.0F;
    const float w = k < args.in_features ? product.Weight(n, k) : 0.0F;
    sums[lane] = fused ? std::fma(w, x, sums[lane]) : sums[lane] + w * x;
  }
  for (; sums.size() > 1; sums.resize(sums.size() / 2)) {
    for (size_t i = 0; i < sums.size() / 2; ++i) sums[i] = sums[2 * i] + sums[2 * i + 1];
  }
  return sums[0];
}

// Returns the sum in the order that kernels/amx/matmul_amx.h promises, with scalar operations. The
// numbers of these tests are far from subnormal.
float SumOnMatrixUnits(const Product& product, size_t m, size_t n) {
  const MatMulArgs& args = product.args();
  std::array<float, 3> parts = {};
  for (size_t step = 0; step < args.in_features; step += 32) {
    std::array<std::array<float, 2>, 3> sums = {};
    for (size_t k = step; k < std::min(step + 32, args.in_features); ++k) {
      float left = args.x[m * args.x_stride + k];
      for (auto& of_part : sums) {
        const float part = std::bit_cast<float>(std::bit_cast<uint32_t>(left) & 0xFFFF0000U);
        left -= part;
        of_part[k % 2] = std::fma(product.Weight(n, k), part, of_part[k % 2]);
      }
      EXPECT_EQ(left, 0.0F) << "three parts do not hold the number";
    }
    for (size_t p = 0; p < 3; ++p) parts[p] += sums[p][0] + sums[p][1];
  }
  return parts[0] + (parts[1] + parts[2]);
}

// Returns the sum with rounded activations, in the order that the head of kernels/matmul_cpu.cc
// states for 16 lanes. The numbers of these tests are far from subnormal.
float SumOfPairs(const Product& product, size_t m, size_t n) {
  const MatMulArgs& args = product.args();
  std::vector<float> sums(16, 0);
  for (size_t pair = 0; 2 * pair < args.in_features; ++pair) {
    for (const size_t k : {2 * pair + 1, 2 * pair}) {
      if (k >= args.in_features) continue;
      const float x = NearestBf16(args.x[m * args.x_stride + k]);
      sums[pair % 16] = std::fma(product.Weight(n, k), x, sums[pair % 16]);
    }
  }
  for (; sums.size() > 1; sums.resize(sums.size() / 2)) {
    for (size_t i = 0; i < sums.size() / 2; ++i) sums[i] = sums[2 * i] + sums[2 * i + 1];
  }
  return sums[0];
}

struct VectorShape {
  size_t lanes;
  bool fused;
};
VectorShape ShapeOf(const std::string& instruction_set) {
  if (instruction_set.starts_with("AVX3")) return {16, true};
  if (instruction_set == "AVX2") return {8, true};
  if (instruction_set.starts_with("NEON")) return {4, true};
  if (instruction_set == "SCALAR") return {1, false};
  return {4, false};
}

// Returns the sum in the order of the units that MatMul uses now.
float WantedSum(const Product& product, size_t m, size_t n) {
  const bool is_bf16 = product.args().dtype == DType::kBF16;
  if (is_bf16 && RoundsActivations()) return SumOfPairs(product, m, n);
  if (is_bf16 && UsesMatrixUnits()) return SumOnMatrixUnits(product, m, n);
  const VectorShape shape = ShapeOf(VectorInstructions());
  return SumInOrder(product, m, n, shape.lanes, shape.fused);
}

// The test also shows which instruction set ran, because the bits depend on the number of lanes and
// on FMA.
TEST_P(MatMulTest, SumsInTheOrderOfTheChosenInstructionSet) {
  ASSERT_EQ(VectorInstructions(), hwy::TargetName(GetParam().target));
  ASSERT_EQ(UsesMatrixUnits(), GetParam().matrix_units);
  ASSERT_EQ(RoundsActivations(), GetParam().rounds_activations);
  for (const DType dtype : kAllDTypes) {
    for (const size_t rows : {2, 30}) {
      const Product product(dtype, rows, 333, 6);
      const std::vector<float> out = product.Run(pool_);
      for (size_t m = 0; m < rows; ++m) {
        for (size_t n = 0; n < 6; ++n) {
          const float want = WantedSum(product, m, n);
          ASSERT_EQ(out[m * product.out_stride() + n], want)
              << Name(dtype) << ", row " << m << ", out feature " << n;
        }
      }
    }
  }
}

TEST(RoundedActivationsTest, NoNumberIsLost) {
  if (!HasBf16Products()) GTEST_SKIP() << "this CPU does not multiply BF16 numbers";
  RoundActivations(true);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float nan = std::bit_cast<float>(0x7FFFFFFFU);  // rounding its bits would give -0
  const std::vector<float> x = {nan, kInfinity, -kInfinity, 1 + 0x1p-8F, 1 + 0x3p-8F, 3.4e38F};
  const uint16_t one = 0x3F80;
  std::vector<float> out(x.size());
  ThreadPool pool(1);
  const MatMulArgs args{.x = x.data(),
                        .x_stride = 1,
                        .rows = x.size(),
                        .w = &one,
                        .dtype = DType::kBF16,
                        .out_features = 1,
                        .in_features = 1,
                        .out = out.data(),
                        .out_stride = 1};
  MatMul({&args, 1}, pool);
  RoundActivations(false);
  EXPECT_TRUE(std::isnan(out[0]));
  EXPECT_EQ(out[1], kInfinity);
  EXPECT_EQ(out[2], -kInfinity);
  EXPECT_EQ(out[3], 1.0F) << "a half is rounded to even";
  EXPECT_EQ(out[4], 1 + 0x1p-6F) << "a half is rounded to even";
  EXPECT_EQ(out[5], kInfinity) << "beyond the largest BF16 number";
}

// Shows that the tests of equal bits can fail. Sums of the same terms in another order differ.
TEST(MatMulOrderTest, AnotherOrderHasOtherBits) {
  const Product product(DType::kBF16, 10, 1100, 38);
  const auto differing = [&](size_t lanes, bool fused) {
    size_t count = 0;
    for (size_t m = 0; m < 10; ++m) {
      for (size_t n = 0; n < 38; ++n) {
        const float other = SumInOrder(product, m, n, lanes, fused);
        const float base = SumInOrder(product, m, n, 8, true);
        count += SameBits(&base, &other, 1) ? 0 : 1;
      }
    }
    return count;
  };
  EXPECT_EQ(differing(8, true), 0U);
  EXPECT_GT(differing(16, true), 200U);
  EXPECT_GT(differing(4, true), 200U);
  EXPECT_GT(differing(8, false), 200U);
}

TEST(MatMulReferenceTest, IsExactForAKnownProduct) {
  const std::vector<float> x = {1, 2, 3};
  // 1, -2, 0.5 | 2^-24 (the smallest half), 65504 (the largest), 0
  const std::vector<uint16_t> w = {0x3c00, 0xc000, 0x3800, 0x0001, 0x7bff, 0x0000};
  const std::vector<float> bias = {10, 20};
  std::vector<float> out = {100, 200};
  MatMulArgs args = {.x = x.data(),
                     .x_stride = 3,
                     .rows = 1,
                     .w = w.data(),
                     .dtype = DType::kF16,
                     .out_features = 2,
                     .in_features = 3,
                     .bias = bias.data(),
                     .out = out.data(),
                     .out_stride = 2,
                     .add_to_out = true};
  MatMulReference(args);
  EXPECT_EQ(out[0], 100 + 10 + (1 - 4 + 1.5F));
  EXPECT_EQ(out[1], static_cast<float>(200 + 20 + 131008 + 0x1p-24));

  const std::vector<uint16_t> bf16 = {0x3f80, 0xc000, 0x3f00};  // 1, -2, 0.5
  args.w = bf16.data();
  args.dtype = DType::kBF16;
  args.out_features = 1;
  args.bias = nullptr;
  args.add_to_out = false;
  MatMulReference(args);
  EXPECT_EQ(out[0], -1.5F);
}

}  // namespace
}  // namespace tandem
