#include "kernels/embedding.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/kernels/every_target.h"

namespace tandem {
namespace {

class EmbeddingTest : public testing::EveryTargetTest {
 protected:
  static void ExpectReference(const EmbedArgs& args) {
    std::vector<float> got(args.rows * args.out_stride + 1, -7.0f);
    std::vector<float> want = got;
    EmbedArgs run = args;
    run.out = got.data();
    Embed(run);
    run.out = want.data();
    EmbedReference(run);
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_TRUE(testing::SameBits(&got[i], &want[i], 1))
          << Name(args.dtype) << " at " << i << ": " << got[i] << ", want " << want[i];
    }
  }
};

TEST_P(EmbeddingTest, WidensEveryFiniteHalfExactly) {
  constexpr size_t kAll = 1 << 16;
  const int32_t id = 0;
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const size_t exponent_mask = dtype == DType::kBF16 ? 0x7F80 : 0x7C00;
    std::vector<uint16_t> table(kAll);
    for (size_t i = 0; i < kAll; ++i) {
      if ((i & exponent_mask) != exponent_mask) table[i] = static_cast<uint16_t>(i);
    }
    ExpectReference({.table = table.data(),
                     .dtype = dtype,
                     .size = kAll,
                     .ids = &id,
                     .rows = 1,
                     .out = nullptr,
                     .out_stride = kAll});
  }
}

TEST_P(EmbeddingTest, GathersRowsFromATableAtAnOddAddress) {
  constexpr size_t kEntries = 9;
  const std::vector<int32_t> ids = {8, 0, 3, 3, 7};
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const size_t size : {1, 2, 7, 8, 24, 35, 100}) {
      std::vector<unsigned char> table(1 + kEntries * size * SizeOf(dtype));
      for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<unsigned char>(i * 37 % 113);
      for (const size_t rows : {size_t{0}, size_t{1}, ids.size()}) {
        ExpectReference({.table = table.data() + 1,
                         .dtype = dtype,
                         .size = size,
                         .ids = ids.data(),
                         .rows = rows,
                         .out = nullptr,
                         .out_stride = size + 3});
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, EmbeddingTest, ::testing::ValuesIn(testing::EveryTarget()),
                         testing::TargetName);

}  // namespace
}  // namespace tandem
