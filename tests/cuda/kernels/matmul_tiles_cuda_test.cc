// Products of many rows in tiles of each kind, compared bit by bit with products of few rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/matmul.h"
#include "kernels/matmul_bf16/matmul_bf16_cuda.h"
#include "kernels/matmul_bf16/rows.h"
#include "kernels/matmul_bf16/tiles.h"
#include "tests/cuda/kernels/bf16_parts.h"
#include "tests/cuda/kernels/device_test.h"

namespace tandem {
namespace {

using bf16_product::ChooseTile;
using bf16_product::kTiles;
using bf16_product::Tile;

class MatMulTilesCudaTest : public testing::DeviceTest {
 protected:
  struct Case {
    size_t rows, in_features, out_features;
    bool with_bias = false;
    bool adds = false;
    int num_parts = 1;
  };

  // Rows of x and out have gaps.
  MatMulArgs Product(const Case& c) {
    const size_t x_stride = c.in_features + 8;
    const size_t out_stride = c.out_features + 3;
    const std::vector<float> x = Uniform(c.rows * x_stride);
    return {.rows = c.rows,
            .w = Upload(testing::Bf16PartsOf(Uniform(c.in_features * c.out_features), 1)),
            .dtype = DType::kBF16,
            .out_features = c.out_features,
            .in_features = c.in_features,
            .bias = c.with_bias ? Upload(Uniform(c.out_features)) : nullptr,
            .out = Upload(Uniform(c.rows * out_stride)),
            .out_stride = out_stride,
            .add_to_out = c.adds,
            .x_bf16 = {.parts = Upload(testing::Bf16PartsOf(x, c.num_parts)),
                       .stride = x_stride,
                       .part_stride = x.size(),
                       .num_parts = c.num_parts}};
  }
  std::vector<float> Out(const MatMulArgs& product) {
    return Download(product.out, product.rows * product.out_stride);
  }

  // Returns what the kernel of few rows makes of the product.
  std::vector<float> InPieces(const MatMulArgs& product) {
    for (size_t first = 0; first < product.rows; first += bf16_product::kMostOfFewRows) {
      MatMulArgs piece = product;
      piece.rows = std::min(bf16_product::kMostOfFewRows, product.rows - first);
      piece.x_bf16 = product.x_bf16.FromRow(first);
      piece.out += first * product.out_stride;
      const absl::Status status = MatMulBf16(piece, stream());
      EXPECT_TRUE(status.ok()) << status;
    }
    return Out(product);
  }
};

// The shapes have a last tile that is full or not, steps that are full or not, slices without steps
// and slices of several steps.
TEST_F(MatMulTilesCudaTest, EveryTileHasTheBitsOfFewRows) {
  for (const Case& c : {Case{65, 72, 130, true, true}, Case{127, 8, 264}, Case{128, 520, 40, true},
                        Case{129, 1352, 17, false, true}, Case{300, 200, 136, true},
                        Case{70, 264, 70, true, true, kMostBf16Parts}}) {
    MatMulArgs product = Product(c);
    const std::vector<float> before = Out(product);
    const std::vector<float> want = InPieces(product);
    for (const Tile tile : kTiles) {
      product.out = Upload(before);
      const absl::Status status = bf16_product::MatMulInTiles(tile, product, stream());
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_EQ(Out(product), want) << "tile " << static_cast<int>(tile) << ": " << c.rows << " x "
                                    << c.in_features << " x " << c.out_features;
      if (c.num_parts > 1) break;  // has one kind of tiles
    }
  }
}

TEST(ChooseTileTest, LargeTilesNeedManyBlocks) {
  const BlockLimits h200 = {.num_multiprocessors = 132, .max_shared_bytes = size_t{227} << 10};
  EXPECT_EQ(ChooseTile(3072, 65, h200), Tile::k64x64);
  EXPECT_EQ(ChooseTile(16384, 2048, h200), Tile::k128x128);
  EXPECT_EQ(ChooseTile(3072, 2048, h200), Tile::k128x128);
  // 160 blocks of 128 x 128 would leave most multiprocessors without work half of the time.
  EXPECT_EQ(ChooseTile(5120, 512, h200), Tile::k128x64);
}

TEST(ChooseTileTest, TakesTilesThatHaveRoom) {
  const BlockLimits small = {.num_multiprocessors = 84, .max_shared_bytes = size_t{99} << 10};
  EXPECT_EQ(ChooseTile(16384, 2048, small), Tile::k128x64);
  EXPECT_EQ(ChooseTile(64, 65, small), Tile::k64x64);
}

}  // namespace
}  // namespace tandem
