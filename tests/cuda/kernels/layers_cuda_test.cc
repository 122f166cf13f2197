// Tests the small kernels of a layer on a device: normalization, position embedding, gate,
// embedding.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <span>
#include <vector>

#include "kernels/add_silu.h"
#include "kernels/attention.h"
#include "kernels/embedding.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"
#include "tests/cuda/kernels/bf16_parts.h"
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

TEST_F(RmsNormCudaTest, RowsGoWhereTheyShould) {
  const size_t size = 40;
  const std::vector<float> x = Uniform(3 * size);
  const std::vector<float> weight = Uniform(size);
  RmsNormArgs args{.x_stride = size, .rows = 3, .size = size, .eps = 1e-5f, .out_stride = size};
  const std::vector<float> in_order = Run(args, x, weight);
  const std::vector<int32_t> places = {4, 0, 2};
  args.out_rows = Upload(places);
  args.x = Upload(x);
  args.weight = Upload(weight);
  float* const out = Upload(std::vector<float>(5 * size, kGap));
  args.out = out;
  ASSERT_TRUE(RmsNorm(args, stream()).ok());
  std::vector<float> want(5 * size, kGap);
  for (size_t row = 0; row < 3; ++row) {
    std::copy_n(in_order.begin() + row * size, size, want.begin() + places[row] * size);
  }
  EXPECT_EQ(Download(out, want.size()), want);
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

class LayerCudaTest : public DeviceTest {
 protected:
  // Memory for rows in BF16 parts, with a gap after each row.
  struct Parts {
    Bf16Rows rows;
    size_t count;
  };
  Parts TakeParts(size_t rows, size_t size, int num_parts) {
    const size_t stride = (size + 7) / 8 * 8 + 8;
    const size_t count = static_cast<size_t>(num_parts) * rows * stride;
    return {{.parts = Upload(std::vector<uint16_t>(count, kGapBits)),
             .stride = stride,
             .part_stride = rows * stride,
             .num_parts = num_parts},
            count};
  }
  // Expects the parts of `want`, bit for bit, and the gaps as they were.
  void ExpectParts(const Parts& parts, size_t size, const std::vector<float>& want,
                   size_t want_stride) {
    const std::vector<uint16_t> got = Download(parts.rows.parts, parts.count);
    const size_t num_rows = parts.rows.part_stride / parts.rows.stride;
    for (size_t row = 0; row < num_rows; ++row) {
      const std::vector<uint16_t> of_row = testing::Bf16PartsOf(
          std::span(want).subspan(row * want_stride, size), parts.rows.num_parts);
      for (size_t part = 0; part < static_cast<size_t>(parts.rows.num_parts); ++part) {
        const size_t begin = part * parts.rows.part_stride + row * parts.rows.stride;
        for (size_t i = 0; i < size; ++i) {
          ASSERT_EQ(got[begin + i], of_row[part * size + i]) << "part " << part << " at " << i;
        }
        for (size_t i = size; i < parts.rows.stride; ++i) ASSERT_EQ(got[begin + i], kGapBits);
      }
    }
  }

 private:
  static constexpr uint16_t kGapBits = 0x4242;
};

// Both kernels write what they would write as floats, in parts.
TEST_F(LayerCudaTest, NormAndGateWriteTheirResultInBf16Parts) {
  const size_t rows = 3;
  for (const size_t size : {8, 260, 1500}) {
    for (const int num_parts : {1, kMostBf16Parts}) {
      const std::vector<float> x = Uniform(rows * size, -20, 20);
      const std::vector<float> weight = Uniform(size);
      RmsNormArgs norm{.x = Upload(x),
                       .x_stride = size,
                       .rows = rows,
                       .size = size,
                       .weight = Upload(weight),
                       .eps = 1e-5f,
                       .out = Upload(x),
                       .out_stride = size};
      ASSERT_TRUE(RmsNorm(norm, stream()).ok());
      const std::vector<float> normed = Download(norm.out, x.size());
      const Parts norm_parts = TakeParts(rows, size, num_parts);
      norm.out_bf16 = norm_parts.rows;
      ASSERT_TRUE(RmsNorm(norm, stream()).ok());
      ExpectParts(norm_parts, size, normed, size);

      SwiGluArgs gate{.gate = Upload(x),
                      .gate_stride = size,
                      .up = Upload(normed),
                      .up_stride = size,
                      .rows = rows,
                      .size = size};
      const Parts gate_parts = TakeParts(rows, size, num_parts);
      gate.out_bf16 = gate_parts.rows;
      ASSERT_TRUE(SwiGlu(gate, stream()).ok());
      EXPECT_EQ(Download(gate.gate, x.size()), x) << "the gate is not written";
      gate.out_bf16 = {};
      ASSERT_TRUE(SwiGlu(gate, stream()).ok());
      ExpectParts(gate_parts, size, Download(gate.gate, x.size()), size);
    }
  }
}

// Rows of queries, keys, and values that are turned and stored.
class RopeAndStoreCudaTest : public DeviceTest {
 protected:
  static constexpr size_t kPositions = 200;
  static constexpr size_t kTableStride = 4;
  static constexpr size_t kLayers = 2;  // the kernel gets the second layer
  static constexpr size_t kHeads = 3;
  static constexpr size_t kKvHeads = 2;
  static constexpr size_t kGap = 3;

  struct Rows {
    std::vector<int32_t> sequences, cache_rows, positions;
    std::vector<float> qkv;

    Rows One(size_t row, size_t stride) const {
      return {.sequences = {sequences[row]},
              .cache_rows = {cache_rows[row]},
              .positions = {positions[row]},
              .qkv = {qkv.begin() + static_cast<ptrdiff_t>(row * stride),
                      qkv.begin() + static_cast<ptrdiff_t>((row + 1) * stride)}};
    }
  };
  struct Result {
    std::vector<float> qkv;
    std::vector<uint8_t> pool;  // bytes of 0xFF where nothing was written
  };

  static size_t Stride(size_t head_size) { return (kHeads + 2 * kKvHeads) * head_size + kGap; }

  // The rows of a tree have the same position.
  Rows MakeRows(size_t head_size) {
    Rows rows;
    rows.sequences = {1, 0, 0, 0, 1};
    rows.cache_rows = {5, 63, 64, 130, 199};
    rows.positions = {5, 63, 64, 64, 199};
    rows.qkv = Uniform(rows.sequences.size() * Stride(head_size));
    return rows;
  }

  static std::vector<float> Table(size_t head_size) {
    std::vector<float> table(kPositions * head_size);
    for (size_t p = 0; p < kPositions; ++p) {
      for (size_t d = 0; d < head_size / 2; ++d) {
        const double angle = p * std::pow(10000.0, -2.0 * d / head_size);
        table[p * head_size + d] = static_cast<float>(std::cos(angle));
        table[p * head_size + head_size / 2 + d] = static_cast<float>(std::sin(angle));
      }
    }
    return table;
  }

  static DeviceKv Kv(DType dtype, size_t head_size) {
    const size_t layer = 2 * kKeyBlock * kKvHeads * head_size;
    return {.dtype = dtype,
            .page_stride = kLayers * layer,
            .layer_offset = layer,
            .num_kv_heads = kKvHeads,
            .head_size = head_size};
  }

  Result Run(DType dtype, size_t head_size, const Rows& rows) {
    DeviceRopeAndStoreArgs args;
    args.kv = Kv(dtype, head_size);
    const size_t bytes = kPages.size() * args.kv.page_stride * SizeOf(dtype);
    auto* const pool = Upload(std::vector<uint8_t>(bytes, 0xFF));
    args.kv.pool = pool;
    args.rows.rows = rows.sequences.size();
    args.rows.page_tables = Upload(kPages);
    args.rows.table_stride = kTableStride;
    args.rows.sequences = Upload(rows.sequences);
    args.rows.cache_rows = Upload(rows.cache_rows);
    args.positions = Upload(rows.positions);
    args.table = Upload(Table(head_size));
    args.qkv = Upload(rows.qkv);
    args.qkv_stride = Stride(head_size);
    args.num_heads = kHeads;
    const absl::Status status = RopeAndStoreKv(args, stream());
    EXPECT_TRUE(status.ok()) << status;
    return {Download(args.qkv, rows.qkv.size()), Download(pool, bytes)};
  }

  // Returns what the kernel should leave in `qkv`, except that keys are turned there.
  static std::vector<float> Reference(size_t head_size, const Rows& rows) {
    const std::vector<float> table = Table(head_size);
    std::vector<float> qkv = rows.qkv;
    RopeReference({.x = qkv.data(),
                   .x_stride = Stride(head_size),
                   .rows = rows.positions.size(),
                   .num_heads = kHeads + kKvHeads,
                   .head_size = head_size,
                   .positions = rows.positions.data(),
                   .table = table.data()});
    return qkv;
  }

  // Returns the pool's elements as floats.
  static std::vector<float> Widen(DType dtype, size_t head_size, const Result& result) {
    std::vector<int32_t> ids(result.pool.size() / SizeOf(dtype) / head_size);
    std::iota(ids.begin(), ids.end(), 0);
    std::vector<float> floats(ids.size() * head_size);
    EmbedReference({.table = result.pool.data(),
                    .dtype = dtype,
                    .size = head_size,
                    .ids = ids.data(),
                    .rows = ids.size(),
                    .out = floats.data(),
                    .out_stride = head_size});
    return floats;
  }

  // Returns where the keys of a row begin in the pool.
  static size_t KeysOf(const DeviceKv& kv, const Rows& rows, size_t row, size_t kv_head) {
    const auto cache_row = static_cast<size_t>(rows.cache_rows[row]);
    const size_t block =
        static_cast<size_t>(rows.sequences[row]) * kTableStride + cache_row / kKeyBlock;
    return kv.KeysAt(static_cast<size_t>(kPages[block]), kv_head, cache_row % kKeyBlock);
  }

  inline static const std::vector<int32_t> kPages = {3, 6, 0, 5, 1, 7, 4, 2};
};

// The largest error of a number of up to 2 that is rounded to the type.
float RoundingError(DType dtype) {
  return dtype == DType::kBF16 ? 0x1p-8f : dtype == DType::kF16 ? 0x1p-11f : 0;
}

TEST_F(RopeAndStoreCudaTest, EqualsTheReferenceToRounding) {
  for (const size_t head_size : {2, 14, 22, 64, 72, 128, 256}) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      const Rows rows = MakeRows(head_size);
      const Result result = Run(dtype, head_size, rows);
      const std::vector<float> want = Reference(head_size, rows);
      const std::vector<float> pool = Widen(dtype, head_size, result);
      const DeviceKv kv = Kv(dtype, head_size);
      const size_t stride = Stride(head_size);
      for (size_t row = 0; row < rows.sequences.size(); ++row) {
        for (size_t i = 0; i < stride; ++i) {
          const size_t at = row * stride + i;
          if (i < kHeads * head_size) {
            ASSERT_NEAR(result.qkv[at], want[at], 1e-6) << head_size << " at " << i;
          } else {
            ASSERT_EQ(result.qkv[at], rows.qkv[at]) << head_size << " at " << i;
          }
        }
        for (size_t i = 0; i < kKvHeads * head_size; ++i) {
          const size_t key = KeysOf(kv, rows, row, i / head_size) + i % head_size;
          const size_t at = row * stride + kHeads * head_size + i;
          const float error = RoundingError(dtype);
          ASSERT_NEAR(pool[key], want[at], error + 1e-6) << head_size << " " << Name(dtype);
          ASSERT_NEAR(pool[key + kv.ValueOffset()], want[at + kKvHeads * head_size], error / 2)
              << head_size << " " << Name(dtype);
        }
      }
      const auto written =
          std::count_if(pool.begin(), pool.end(), [](float value) { return !std::isnan(value); });
      EXPECT_EQ(static_cast<size_t>(written), rows.sequences.size() * 2 * kKvHeads * head_size);
    }
  }
}

TEST_F(RopeAndStoreCudaTest, ARowHasTheSameBitsAloneAndAmongOthers) {
  for (const size_t head_size : {14, 64}) {
    const size_t stride = Stride(head_size);
    const Rows rows = MakeRows(head_size);
    const Result together = Run(DType::kF32, head_size, rows);
    const std::vector<float> pool = Widen(DType::kF32, head_size, together);
    const DeviceKv kv = Kv(DType::kF32, head_size);
    for (size_t row = 0; row < rows.sequences.size(); ++row) {
      const Result alone = Run(DType::kF32, head_size, rows.One(row, stride));
      const std::vector<float> pool_alone = Widen(DType::kF32, head_size, alone);
      for (size_t i = 0; i < stride; ++i) ASSERT_EQ(alone.qkv[i], together.qkv[row * stride + i]);
      for (size_t i = 0; i < kKvHeads * head_size; ++i) {
        const size_t key = KeysOf(kv, rows, row, i / head_size) + i % head_size;
        ASSERT_EQ(pool_alone[key], pool[key]);
        ASSERT_EQ(pool_alone[key + kv.ValueOffset()], pool[key + kv.ValueOffset()]);
      }
    }
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

TEST_F(LayerCudaTest, AddSiluEqualsTheReferenceToRoundingAndWritesBf16PartsToo) {
  const size_t rows = 3;
  for (const size_t size : {1, 255, 257, 600}) {
    std::vector<float> want = Uniform(rows * (size + 1), -30, 30);
    want[0] = -200;  // exp overflows
    const std::vector<float> x = Uniform(rows * (size + 2));
    float* const y = Upload(want);
    AddSiluArgs args{.x = Upload(x),
                     .x_stride = size + 2,
                     .y = y,
                     .y_stride = size + 1,
                     .rows = rows,
                     .size = size};
    ASSERT_TRUE(AddSilu(args, stream()).ok());
    const std::vector<float> got = Download(y, want.size());
    for (const int num_parts : {1, kMostBf16Parts}) {
      args.y = Upload(want);
      const Parts parts = TakeParts(rows, size, num_parts);
      args.out_bf16 = parts.rows;
      ASSERT_TRUE(AddSilu(args, stream()).ok());
      EXPECT_EQ(Download(args.y, want.size()), got);
      ExpectParts(parts, size, got, size + 1);
    }
    args.x = x.data();
    args.y = want.data();
    AddSiluReference(args);
    // What cancels is as large as the addends.
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(got[i], want[i], 2e-6 * (1 + std::abs(want[i]))) << size << " at " << i;
  }
}

TEST_F(LayerCudaTest, EmbeddingWritesBf16PartsToo) {
  const size_t size = 260;
  const std::vector<float> table = Uniform(4 * size, -20, 20);
  const std::vector<int32_t> ids = {2, 0, 2};
  for (const int num_parts : {1, kMostBf16Parts}) {
    const Parts parts = TakeParts(ids.size(), size, num_parts);
    float* const out = Upload(std::vector<float>(ids.size() * size));
    ASSERT_TRUE(Embed({.table = Upload(table),
                       .dtype = DType::kF32,
                       .size = size,
                       .ids = Upload(ids),
                       .rows = ids.size(),
                       .out = out,
                       .out_stride = size,
                       .out_bf16 = parts.rows},
                      stream())
                    .ok());
    const std::vector<float> rows = Download(out, ids.size() * size);
    EXPECT_TRUE(std::equal(rows.begin(), rows.begin() + size, table.begin() + 2 * size));
    ExpectParts(parts, size, rows, size);
  }
}

TEST_F(LayerCudaTest, EmbeddingCopiesRowsToOtherRows) {
  const size_t size = 260;
  const size_t stride = 300;
  const std::vector<float> table = Uniform(3 * size, -20, 20);
  const std::vector<int32_t> out_rows = {4, 0, 2};
  std::vector<float> want(5 * stride, 7.0f);
  for (size_t row = 0; row < out_rows.size(); ++row) {
    std::copy_n(table.begin() + static_cast<ptrdiff_t>(row * size), size,
                want.begin() + static_cast<ptrdiff_t>(out_rows[row]) * 300);
  }
  float* const out = Upload(std::vector<float>(want.size(), 7.0f));
  ASSERT_TRUE(Embed({.table = Upload(table),
                     .dtype = DType::kF32,
                     .size = size,
                     .rows = out_rows.size(),
                     .out = out,
                     .out_stride = stride,
                     .out_rows = Upload(out_rows)},
                    stream())
                  .ok());
  EXPECT_EQ(Download(out, want.size()), want);
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
