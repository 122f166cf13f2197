// Tests of how the rows of a block are cut into chunks and tiles.
#include "common/model/cuda/row_numbers.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

#include "common/model/model_description.h"
#include "tests/cuda/kernels/device_test.h"

namespace tandem::row_numbers_cuda_test {
namespace {

constexpr size_t kHeads = 2;
constexpr size_t kCapacity = 320;

class RowNumbersCudaTest : public testing::DeviceTest {
 protected:
  void SetUp() override {
    testing::DeviceTest::SetUp();
    if (IsSkipped()) return;
    ModelDescription model;
    model.num_layers = 1;
    model.attention.num_kv_heads = 1;
    model.attention.head_size = 4;
    pool_ = *KvPagePool::Create(model, 2 * kCapacity / kPageRows * HostKvMemory::PageBytes(model));
  }

  // Sends 40 rows after 100 others of one sequence, and 3 rows of another one.
  PassShape Send(RowNumbers& numbers) {
    KvCache first(pool_.get(), kCapacity);
    KvCache second(pool_.get(), kCapacity);
    for (KvCache* const cache : {&first, &second}) EXPECT_TRUE(cache->Reserve(kCapacity).ok());
    std::vector<int32_t> positions(43);
    std::iota(positions.begin(), positions.begin() + 40, 100);
    std::iota(positions.begin() + 40, positions.end(), 0);
    const RowNumbers::Sequence sequences[] = {{.cache = &first, .length = 100, .rows = 40},
                                              {.cache = &second, .rows = 3}};
    const std::vector<int32_t> ids(positions.size());
    PassShape shape;
    const absl::Status status =
        numbers.Send({.token_ids = ids, .positions = positions, .sequences = sequences}, &shape);
    EXPECT_TRUE(status.ok()) << status;
    return shape;
  }

  std::unique_ptr<RowNumbers> WithRoom(size_t partial_rows) {
    auto numbers =
        std::make_unique<RowNumbers>(RowNumbers::Sizes{.max_rows = 320,
                                                       .table_stride = kCapacity / kPageRows,
                                                       .num_heads = kHeads,
                                                       .partial_rows = partial_rows});
    const auto take = [this](void** piece, size_t bytes, const char*) {
      *piece = Upload(std::vector<uint8_t>(bytes));
      return absl::OkStatus();
    };
    EXPECT_TRUE(numbers->LayOut(MemoryTaker(take)).ok());
    EXPECT_TRUE(numbers->Start(&device_stream()).ok());
    return numbers;
  }

  std::vector<int32_t> TilesOf(const RowNumbers& numbers, const AttentionChunk& chunk) {
    return Download(numbers.RowsOf(chunk).tiles, chunk.num_tiles + 1);
  }

  std::unique_ptr<KvPagePool> pool_;
};

TEST_F(RowNumbersCudaTest, RowsAreOneChunkIfTheirPartialsHaveRoom) {
  const std::unique_ptr<RowNumbers> numbers = WithRoom(kHeads * 43 * 3);
  const PassShape shape = Send(*numbers);
  ASSERT_EQ(shape.chunks.size(), 1u);
  EXPECT_EQ(shape.chunks[0], (AttentionChunk{.rows = 43, .num_tiles = 4, .max_blocks = 3}));
  EXPECT_EQ(shape.whole, AttentionChunk());
  EXPECT_EQ(TilesOf(*numbers, shape.chunks[0]), (std::vector<int32_t>{0, 16, 32, 40, 43}));
}

TEST_F(RowNumbersCudaTest, RowsWithoutRoomAreSeveralChunksAndTheWhole) {
  const std::unique_ptr<RowNumbers> numbers = WithRoom(kHeads * 20 * 3);
  const PassShape shape = Send(*numbers);
  ASSERT_GT(shape.chunks.size(), 1u);
  size_t rows = 0;
  for (const AttentionChunk& chunk : shape.chunks) {
    EXPECT_EQ(chunk.first_row, rows);
    EXPECT_LE(chunk.rows * chunk.max_blocks, 20u * 3);
    EXPECT_EQ(TilesOf(*numbers, chunk).front(), 0);
    EXPECT_EQ(TilesOf(*numbers, chunk).back(), static_cast<int32_t>(chunk.rows));
    rows += chunk.rows;
  }
  EXPECT_EQ(rows, 43u);
  EXPECT_EQ(shape.whole.first_row, 0u);
  EXPECT_EQ(shape.whole.rows, 43u);
  EXPECT_EQ(shape.whole.max_blocks, 3u);
  EXPECT_EQ(TilesOf(*numbers, shape.whole), (std::vector<int32_t>{0, 16, 32, 40, 43}));
}

TEST_F(RowNumbersCudaTest, TilesAreLargerIfThereAreManyRows) {
  const std::unique_ptr<RowNumbers> numbers = WithRoom(kHeads * 300 * 6);
  KvCache cache(pool_.get(), 300);
  ASSERT_TRUE(cache.Reserve(300).ok());
  const std::vector<int32_t> ids(300);
  const RowNumbers::Sequence sequence = {.cache = &cache, .rows = 300};
  PassShape shape;
  const absl::Status status =
      numbers->Send({.token_ids = ids, .positions = ids, .sequences = {&sequence, 1}}, &shape);
  ASSERT_TRUE(status.ok()) << status;
  const std::vector<int32_t> tiles = TilesOf(*numbers, shape.chunks[0]);
  EXPECT_EQ(tiles.size(), 11u);
  EXPECT_EQ(tiles[1], static_cast<int32_t>(kMostTileRows));
}

}  // namespace
}  // namespace tandem::row_numbers_cuda_test
