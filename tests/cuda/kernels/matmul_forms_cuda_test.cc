// Products that end with the next step of a layer, compared bit by bit with the product and that
// step one after the other.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/attention.h"
#include "kernels/matmul.h"
#include "kernels/matmul_bf16/matmul_bf16_cuda.h"
#include "kernels/swiglu.h"
#include "tests/cuda/kernels/bf16_parts.h"
#include "tests/cuda/kernels/device_test.h"

namespace tandem {
namespace {

class MatMulFormsCudaTest : public testing::DeviceTest {
 protected:
  struct Case {
    size_t rows, in_features, out_features;
    bool with_bias = false;
    int num_parts = 1;
  };

  MatMulArgs Product(const Case& c) {
    const std::vector<float> x = Uniform(c.rows * c.in_features);
    return {.rows = c.rows,
            .w = Upload(testing::Bf16PartsOf(Uniform(c.in_features * c.out_features), 1)),
            .dtype = DType::kBF16,
            .out_features = c.out_features,
            .in_features = c.in_features,
            .bias = c.with_bias ? Upload(Uniform(c.out_features)) : nullptr,
            .out = Upload(std::vector<float>(c.rows * c.out_features)),
            .out_stride = c.out_features,
            .x_bf16 = {.parts = Upload(testing::Bf16PartsOf(x, c.num_parts)),
                       .stride = c.in_features,
                       .part_stride = x.size(),
                       .num_parts = c.num_parts}};
  }

  // Rows in BF16 parts with a gap after each row.
  Bf16Rows Parts(size_t rows, size_t size, int num_parts) {
    Bf16Rows to = {.stride = size + 8, .part_stride = rows * (size + 8), .num_parts = num_parts};
    to.parts = Upload(std::vector<uint16_t>(num_parts * to.part_stride, 0x4242));
    return to;
  }
  std::vector<uint16_t> Content(const Bf16Rows& rows) {
    return Download(rows.parts, rows.num_parts * rows.part_stride);
  }
};

// The numbers of rows and features make the kernels split their work in each of their ways.
TEST_F(MatMulFormsCudaTest, TheGateHasTheBitsOfTwoSteps) {
  for (const Case& c : {Case{1, 264, 48}, Case{3, 520, 80, true}, Case{8, 72, 6560},
                        Case{12, 136, 40, true, 3}, Case{30, 72, 96}, Case{50, 136, 112, false, 3},
                        Case{60, 72, 48}, Case{130, 136, 144, true}, Case{70, 72, 48, false, 3}}) {
    const MatMulArgs product = Product(c);
    const size_t inner = c.out_features / 2;
    const Bf16Rows want = Parts(c.rows, inner, c.num_parts);
    const Bf16Rows got = Parts(c.rows, inner, c.num_parts);
    ASSERT_TRUE(MatMul(product, stream()).ok());
    ASSERT_TRUE(SwiGlu({.gate = product.out,
                        .gate_stride = product.out_stride,
                        .up = product.out + inner,
                        .up_stride = product.out_stride,
                        .rows = c.rows,
                        .size = inner,
                        .out_bf16 = want},
                       stream())
                    .ok());
    const absl::Status status = MatMulSwiGlu(product, got, stream());
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(Content(got), Content(want)) << c.rows << " rows of " << c.out_features;
  }
}

class MatMulRopeCudaTest : public MatMulFormsCudaTest {
 protected:
  static constexpr size_t kKvHeads = 2;
  static constexpr size_t kPositions = 200;
  inline static const std::vector<int32_t> kPages = {3, 6, 0, 5, 1, 7, 4, 2};
  static constexpr size_t kTableStride = 4;

  // Rows of two sequences in turn, at any places of their caches.
  DeviceRopeAndStoreArgs Rope(const Case& c, size_t head_size, size_t num_heads) {
    DeviceRopeAndStoreArgs args;
    const size_t layer = 2 * kKeyBlock * kKvHeads * head_size;
    args.kv = {.dtype = DType::kBF16,
               .page_stride = 2 * layer,
               .layer_offset = layer,
               .num_kv_heads = kKvHeads,
               .head_size = head_size};
    std::vector<int32_t> sequences, cache_rows;
    for (size_t row = 0; row < c.rows; ++row) {
      sequences.push_back(static_cast<int32_t>(row % 2));
      cache_rows.push_back(static_cast<int32_t>((37 + 5 * (row / 2)) % kPositions));
    }
    args.rows.rows = c.rows;
    args.rows.page_tables = Upload(kPages);
    args.rows.table_stride = kTableStride;
    args.rows.sequences = Upload(sequences);
    args.rows.cache_rows = args.positions = Upload(cache_rows);
    args.table = Upload(Uniform(kPositions * head_size));
    args.num_heads = num_heads;
    return args;
  }

  size_t PoolSize(const DeviceKv& kv) const { return kPages.size() * kv.page_stride; }
};

TEST_F(MatMulRopeCudaTest, QueriesAndPagesHaveTheBitsOfTwoSteps) {
  struct Shape {
    Case product;
    size_t head_size, num_heads;
  };
  for (const Shape& shape : {Shape{{1, 264, 0}, 16, 4}, Shape{{5, 72, 0, true}, 24, 6},
                             Shape{{16, 136, 0, false, 3}, 8, 2}, Shape{{33, 72, 0}, 64, 2},
                             Shape{{70, 136, 0, true}, 16, 4}, Shape{{70, 72, 0, false, 3}, 8, 4},
                             Shape{{2, 40, 0}, 128, 50}}) {
    Case c = shape.product;
    c.out_features = (shape.num_heads + 2 * kKvHeads) * shape.head_size;
    const MatMulArgs product = Product(c);
    DeviceRopeAndStoreArgs rope = Rope(c, shape.head_size, shape.num_heads);
    rope.qkv = product.out;
    rope.qkv_stride = product.out_stride;
    const std::vector<uint16_t> empty(PoolSize(rope.kv), 0x4242);
    std::vector<float> queries[2];
    std::vector<uint16_t> pools[2];
    for (const bool fused : {false, true}) {
      auto* const pool = Upload(empty);
      rope.kv.pool = pool;
      if (fused) {
        const absl::Status status = MatMulRopeAndStoreKv(product, rope, stream());
        ASSERT_TRUE(status.ok()) << status;
      } else {
        ASSERT_TRUE(MatMul(product, stream()).ok());
        ASSERT_TRUE(RopeAndStoreKv(rope, stream()).ok());
      }
      const std::vector<float> rows = Download(product.out, c.rows * product.out_stride);
      for (size_t row = 0; row < c.rows; ++row) {
        const auto begin = rows.begin() + static_cast<ptrdiff_t>(row * product.out_stride);
        queries[fused].insert(queries[fused].end(), begin,
                              begin + static_cast<ptrdiff_t>(shape.num_heads * shape.head_size));
      }
      pools[fused] = Download(pool, empty.size());
    }
    ASSERT_NE(pools[0], empty);
    ASSERT_EQ(queries[0], queries[1]) << c.rows << " rows, heads of " << shape.head_size;
    ASSERT_EQ(pools[0], pools[1]) << c.rows << " rows, heads of " << shape.head_size;
  }
}

TEST_F(MatMulFormsCudaTest, RefusesWhatMatMulRefuses) {
  MatMulArgs product = Product({1, 16, 32});
  product.in_features = 12;
  const Bf16Rows out = Parts(1, 16, 1);
  EXPECT_EQ(MatMulSwiGlu(product, out, stream()).code(), absl::StatusCode::kInvalidArgument);
  product.in_features = 16;
  product.x_bf16.parts += 1;
  EXPECT_EQ(MatMulSwiGlu(product, out, stream()).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem
