// Tests of the operations on pages in device memory.
#include "common/model/cuda/cuda_kv_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "tests/cuda/kernels/device_test.h"

namespace tandem::kv_memory_cuda_test {
namespace {

// All values of the pages differ.
class KvMemoryCudaTest : public testing::DeviceTest {
 protected:
  static constexpr size_t kPages = 3;
  static constexpr size_t kLayers = 2;
  static constexpr size_t kKvHeads = 3;
  static constexpr size_t kHeadSize = 4;
  static constexpr size_t kPlanes = 2 * kLayers * kKvHeads;
  static constexpr size_t kPageValues = kPlanes * kPageRows * kHeadSize;

  void SetUp() override {
    testing::DeviceTest::SetUp();
    if (IsSkipped()) return;
    model_.num_layers = kLayers;
    model_.attention.num_kv_heads = kKvHeads;
    model_.attention.head_size = kHeadSize;
    want_.resize(kPages * kPageValues);
    std::iota(want_.begin(), want_.end(), uint16_t{0});
    data_ = Upload(want_);
  }

  uint16_t* At(size_t page, size_t row, size_t plane, size_t i) {
    return &want_[page * kPageValues + (plane * kPageRows + row) * kHeadSize + i];
  }

  // Runs CopyRows, and expects that it does the same as copies of one value after the other.
  void ExpectMoves(const std::vector<KvRowMove>& moves) {
    CudaKvMemory memory(model_, DType::kBF16, {.count = kPages, .layers = data_}, &device_stream(),
                        false);
    const absl::Status status = memory.CopyRows(moves);
    ASSERT_TRUE(status.ok()) << status;
    for (const KvRowMove& move : moves) {
      for (size_t plane = 0; plane < kPlanes; ++plane) {
        for (size_t i = 0; i < kHeadSize; ++i) {
          *At(move.to_page, move.to_row, plane, i) = *At(move.from_page, move.from_row, plane, i);
        }
      }
    }
    EXPECT_EQ(Download(data_, want_.size()), want_);
  }

  ModelDescription model_;
  std::vector<uint16_t> want_;
  uint16_t* data_ = nullptr;
};

TEST_F(KvMemoryCudaTest, CopiesRowsOneAfterTheOther) {
  ExpectMoves({});
  ExpectMoves({{.from_page = 1, .from_row = 2, .to_page = 1, .to_row = 1},
               {.from_page = 1, .from_row = 3, .to_page = 1, .to_row = 2}});
  // The last and the first row of pages, and from one page to another.
  ExpectMoves({{.from_page = 2, .from_row = 63, .to_page = 0, .to_row = 0},
               {.from_page = 0, .from_row = 5, .to_page = 1, .to_row = 63},
               {.from_page = 1, .from_row = 63, .to_page = 2, .to_row = 62}});
}

}  // namespace
}  // namespace tandem::kv_memory_cuda_test
