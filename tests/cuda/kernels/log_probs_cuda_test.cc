// Compares argmax and the transforms on a device with those of the CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "kernels/sampling/log_probs_report.h"
#include "kernels/sampling/transform/transform.h"
#include "tests/cuda/kernels/device_rows.h"

namespace tandem::log_probs_cuda_test {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

class LogProbsCudaTest : public testing::DeviceRowsTest {
 protected:
  Rows Run(const Rows& rows, const std::vector<RowSampling>& params) {
    float* const values = UploadRows(rows);
    const absl::Status status = LogProbs({.rows = rows.size(),
                                          .vocabulary_size = rows[0].size(),
                                          .stride = rows[0].size() + kGap,
                                          .params = Upload(params),
                                          .adjusted = values,
                                          .log_probs = values},  // in place
                                         stream());
    EXPECT_TRUE(status.ok()) << status;
    return DownloadRows(values, rows.size(), rows[0].size());
  }

  // Runs with `gap` floats between rows. The first row begins `offset` floats after an address that
  // any load may have.
  Rows RunAt(const Rows& rows, const std::vector<RowSampling>& params, size_t offset, size_t gap) {
    const size_t stride = rows[0].size() + gap;
    std::vector<float> flat(offset + rows.size() * stride);
    const auto begin_of = [&](size_t row) {
      return flat.begin() + static_cast<ptrdiff_t>(offset + row * stride);
    };
    for (size_t i = 0; i < rows.size(); ++i) {
      std::copy(rows[i].begin(), rows[i].end(), begin_of(i));
    }
    float* const values = Upload(flat);
    const absl::Status status = LogProbs({.rows = rows.size(),
                                          .vocabulary_size = rows[0].size(),
                                          .stride = stride,
                                          .params = Upload(params),
                                          .adjusted = values + offset,
                                          .log_probs = values + offset},
                                         stream());
    EXPECT_TRUE(status.ok()) << status;
    flat = Download(values, flat.size());
    Rows got;
    for (size_t i = 0; i < rows.size(); ++i) {
      got.emplace_back(begin_of(i), begin_of(i) + static_cast<ptrdiff_t>(rows[0].size()));
    }
    return got;
  }

  // Compares a row with the CPU for each setting.
  void ExpectLikeTheCpu(const std::vector<float>& row, const std::vector<RowSampling>& params) {
    const Rows got = Run(Rows(params.size(), row), params);
    for (size_t i = 0; i < params.size(); ++i) {
      SCOPED_TRACE(::testing::Message() << row.size() << " entries, setting " << i);
      ExpectSame(got[i], OnTheCpu(row, params[i]));
    }
  }

  static std::vector<float> OnTheCpu(const std::vector<float>& row, const RowSampling& sampling) {
    SamplingParams params;
    params.temperature = sampling.temperature;
    params.top_p = sampling.top_p;
    params.top_k = sampling.top_k;
    params.min_p = sampling.min_p;
    std::vector<float> log_probs(row.size());
    LogProbs(row, params, log_probs);
    return log_probs;
  }

  static void ExpectSame(const std::vector<float>& got, const std::vector<float>& want) {
    for (size_t i = 0; i < want.size(); ++i) {
      if (want[i] == kMinusInfinity) {
        ASSERT_EQ(got[i], kMinusInfinity) << i;
      } else {
        ASSERT_NEAR(got[i], want[i], 3e-6 * std::max(1.0f, std::abs(want[i]))) << i;
      }
    }
  }
};

TEST_F(LogProbsCudaTest, CutsAndNormalizesLikeTheCpu) {
  const std::vector<RowSampling> params = {
      {},
      {0.7f},
      {1.0f, 0.9f},
      {1.3f, 0.5f, 40},
      {1.0f, 1.0f, 1},
      {0.8f, 1.0f, 7, 0.05f},
      {2.0f, 0.999f, 0, 0.001f},
      {0.05f, 0.3f},
      {1.0f, 1e-6f},
      {1.0f, 1.0f, 100000},
      {1.0f, 1.0f, 0, 1.0f},
      {1.0f, 0.95f, 0, 0.2f},
  };
  for (const size_t size : {1, 2, 257, 3000, 128256}) {
    std::vector<std::vector<float>> rows;
    for (size_t i = 0; i < params.size(); ++i) rows.push_back(Uniform(size, -8, 8));
    const std::vector<std::vector<float>> got = Run(rows, params);
    for (size_t i = 0; i < params.size(); ++i) {
      SCOPED_TRACE(::testing::Message() << size << " entries, setting " << i);
      ExpectSame(got[i], OnTheCpu(rows[i], params[i]));
    }
  }
}

TEST_F(LogProbsCudaTest, AmongEqualsTheLowerIdsStay) {
  std::vector<float> row(1000, 1.0f);
  row[500] = 2;
  row[0] = 0.0f;
  row[1] = -0.0f;
  const std::vector<RowSampling> params = {{1, 1, 5}, {1, 0.5f}, {1, 0.3f, 100}, {1, 1, 999}};
  const std::vector<std::vector<float>> got = Run({row, row, row, row}, params);
  for (size_t i = 0; i < params.size(); ++i) ExpectSame(got[i], OnTheCpu(row, params[i]));
}

TEST_F(LogProbsCudaTest, MaskedEntriesStayMasked) {
  std::vector<float> row = Uniform(300);
  for (size_t i = 0; i < row.size(); i += 2) row[i] = kMinusInfinity;
  const std::vector<RowSampling> params = {{}, {1, 1, 200}, {1, 0.9f, 0, 0.01f}};
  const std::vector<std::vector<float>> got = Run({row, row, row}, params);
  for (size_t i = 0; i < params.size(); ++i) ExpectSame(got[i], OnTheCpu(row, params[i]));
}

TEST_F(LogProbsCudaTest, GreedyRowsStayAsTheyAre) {
  const Rows rows = {Uniform(300), Uniform(300)};
  const Rows got = Run(rows, {{0, 0.5f, 3}, {1, 1, 3}});
  EXPECT_EQ(got[0], rows[0]);
  EXPECT_NE(got[1], rows[1]);
}

TEST_F(LogProbsCudaTest, ARowHasTheSameBitsAloneAndAmongOthers) {
  const std::vector<std::vector<float>> rows = {Uniform(700), Uniform(700, -30, 30), Uniform(700)};
  const std::vector<RowSampling> params = {{0.9f, 0.8f}, {1, 0.95f, 50}, {1.5f, 1, 0, 0.02f}};
  const std::vector<std::vector<float>> together = Run(rows, params);
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(Run({rows[i]}, {params[i]})[0], together[i]);
}

// The kernel gathers at most 4,096 entries. The rows of the following tests have more that tie, or
// that are as far from the largest entry.

TEST_F(LogProbsCudaTest, RowsOfEqualsAreCutAmongTheTies) {
  for (const size_t size : {4096, 4097, 131072}) {
    ExpectLikeTheCpu(std::vector<float>(size, -3.25f), {{1, 1, 40},
                                                        {0.5f, 1, 1024},
                                                        {1, 1, 1025},
                                                        {1, 1, 3000},
                                                        {1, 0.5f},
                                                        {1, 0.25f, 4001},
                                                        {1, 0.75f, 1000}});
  }
}

TEST_F(LogProbsCudaTest, CutsAmongTiesBelowTheLargest) {
  // 100 entries are larger than the ties, and others are smaller.
  std::vector<float> row(20000, 1.0f);
  for (size_t i = 0; i < row.size(); i += 200) row[i] = 1.5f;
  for (size_t i = 7; i < row.size(); i += 5) row[i] = 0.999f;
  ExpectLikeTheCpu(row, {{1, 1, 100}, {1, 1, 101}, {1, 1, 5000}, {1, 0.6f}, {0.01f, 0.9f}});
}

TEST_F(LogProbsCudaTest, ManyEntriesAtAlmostTheSameDistance) {
  // All distinct values are within one bin, or within a few.
  for (const float width : {1e-3f, 0.05f, 0.5f}) {
    std::vector<float> row = Uniform(30000, 4 - width, 4);
    row[29999] = 4;
    ExpectLikeTheCpu(row, {{1, 1, 1000}, {1, 1, 20000}, {1, 0.3f}, {20, 0.9f}, {1, 0.6f, 9000}});
  }
}

TEST_F(LogProbsCudaTest, ClustersFarApart) {
  // The lower cluster has most of the mass at a high temperature, and almost none otherwise.
  std::vector<float> row = Uniform(131072, -30, -29);
  for (size_t i = 0; i < row.size(); i += 100) row[i] = Uniform(1, 10, 11)[0];
  ExpectLikeTheCpu(row, {{1, 0.9f},
                         {1, 0.9999999f},
                         {30, 0.9f},
                         {30, 0.1f},
                         {1, 1, 1000},
                         {1, 1, 2000},
                         {10, 0.98f, 1800, 0.01f}});
}

TEST_F(LogProbsCudaTest, TopPCutsWhatTopKHasLeft) {
  for (const size_t size : {3000, 131071}) {
    std::vector<RowSampling> params;
    for (const int32_t top_k : {1, 2, 40, 1000, 1024, 1025, 2500}) {
      for (const float top_p : {1e-6f, 0.5f, 0.95f}) {
        params.push_back({0.8f, top_p, top_k});
        params.push_back({1.0f, top_p, top_k, 0.02f});
      }
    }
    ExpectLikeTheCpu(Uniform(size, -6, 6), params);
  }
}

TEST_F(LogProbsCudaTest, HugeValuesAndMasks) {
  const std::vector<RowSampling> params = {
      {}, {1, 1, 40}, {1, 0.9f}, {1, 0.9f, 40}, {1, 1, 1500}, {2, 1, 0, 0.05f}, {1e6f, 0.5f}};
  // 1e30 - -1e30, in units of a bin, is far beyond any integer.
  std::vector<float> row = Uniform(9000);
  for (size_t i = 0; i < row.size(); i += 3) row[i] = i % 2 == 0 ? 1e30f : -1e30f;
  ExpectLikeTheCpu(row, params);
  row.assign(9000, -1e30f);
  row[8000] = 1e30f;
  ExpectLikeTheCpu(row, params);
  // Fewer entries than top_k are not masked.
  row.assign(9000, kMinusInfinity);
  for (size_t i = 5; i < row.size(); i += 500) row[i] = static_cast<float>(i % 7);
  ExpectLikeTheCpu(row, params);
  row.assign(9000, kMinusInfinity);
  row[8999] = -1e30f;
  ExpectLikeTheCpu(row, params);
}

TEST_F(LogProbsCudaTest, RowsThatAreNotFiniteComeToAnEnd) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<RowSampling> params = {{}, {1, 1, 40}, {1, 0.9f}, {1, 0.9f, 2000, 0.1f}};
  std::vector<float> mixed = Uniform(5000);
  mixed[0] = kNan;
  mixed[17] = kInfinity;
  for (const std::vector<float>& row :
       {mixed, std::vector<float>(5000, kNan), std::vector<float>(5000, kInfinity),
        std::vector<float>(5000, kMinusInfinity)}) {
    EXPECT_EQ(Run(Rows(params.size(), row), params).size(), params.size());
  }
}

TEST_F(LogProbsCudaTest, TheBitsDoNotDependOnTheAlignment) {
  const std::vector<RowSampling> params = {
      {0.9f}, {0.9f, 0.8f}, {1, 0.95f, 50}, {1.5f, 1, 0, 0.02f}, {0, 1, 0}, {0.7f, 0.9f, 2000}};
  for (const size_t size : {5, 4099, 40001}) {
    Rows rows;
    for (size_t i = 0; i < params.size(); ++i) rows.push_back(Uniform(size, -9, 9));
    const Rows aligned = RunAt(rows, params, 0, 4 - size % 4);
    for (size_t i = 0; i < params.size(); ++i)
      ExpectSame(aligned[i], params[i].temperature == 0 ? rows[i] : OnTheCpu(rows[i], params[i]));
    for (const size_t gap : {1, 2, 3, 4}) {
      for (const size_t offset : {0, 1, 3}) EXPECT_EQ(RunAt(rows, params, offset, gap), aligned);
    }
  }
}

TEST_F(LogProbsCudaTest, ArgmaxIsTheLowestOfTheLargestAndNoneIfSomethingIsNotFinite) {
  const size_t size = 1300;
  std::vector<std::vector<float>> rows(5, Uniform(size));
  rows[0][700] = rows[0][1299] = 3;
  rows[1].assign(size, -5.0f);
  rows[2][1] = std::numeric_limits<float>::quiet_NaN();
  rows[3][1299] = kMinusInfinity;
  rows[4][0] = std::numeric_limits<float>::infinity();
  for (const size_t gap : {0, 1}) {
    std::vector<float> flat;
    for (const std::vector<float>& row : rows) {
      flat.insert(flat.end(), row.begin(), row.end());
      flat.insert(flat.end(), gap, 9.0f);  // larger than all entries
    }
    int32_t* const ids = Upload(std::vector<int32_t>(rows.size(), 99));
    const DeviceArgmaxArgs args{.rows = rows.size(),
                                .vocabulary_size = size,
                                .stride = size + gap,
                                .logits = Upload(flat),
                                .token_ids = ids};
    ASSERT_TRUE(Argmax(args, stream()).ok());
    EXPECT_EQ(Download(ids, rows.size()), (std::vector<int32_t>{700, 0, -1, -1, -1})) << gap;
  }
}

class ReportRowsCudaTest : public testing::DeviceTest {};

TEST_F(ReportRowsCudaTest, EqualsTheReportOfTheCpuAndShowsRowsThatAreNotFinite) {
  for (const size_t size : {3, 99, 3000}) {
    const size_t stride = size + 3;
    constexpr size_t kRows = 5;
    std::vector<float> logits = Uniform(kRows * stride, -9, 9);
    for (size_t i = 0; i < size; ++i) logits[stride + i] = static_cast<float>(i % 2);  // ties
    logits[2 * stride + size - 1] = std::numeric_limits<float>::quiet_NaN();
    logits[3 * stride] = -std::numeric_limits<float>::infinity();
    for (size_t row = 0; row < kRows; ++row) {  // after the end of each row
      logits[row * stride + size] = std::numeric_limits<float>::infinity();
    }
    DeviceReport* const reports = Upload(std::vector<DeviceReport>(kRows));
    ASSERT_TRUE(ReportRows({.rows = kRows,
                            .vocabulary_size = size,
                            .stride = stride,
                            .logits = Upload(logits),
                            .num_top = 8,
                            .reports = reports},
                           stream())
                    .ok());
    const std::vector<DeviceReport> got = Download(reports, kRows);
    for (size_t row = 0; row < kRows; ++row) {
      if (row == 2 || row == 3) {
        EXPECT_EQ(got[row].num_top, 0);
        continue;
      }
      const std::span<const float> of_row(logits.data() + row * stride, size);
      const std::vector<TopLogProb> want = ReportLogProbs(of_row, 0, 8).top;
      ASSERT_EQ(static_cast<size_t>(got[row].num_top), want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_EQ(got[row].top[i].token_id, want[i].token_id) << size << " row " << row;
        EXPECT_NEAR(got[row].top[i].log_prob, want[i].log_prob, 1e-5);
        const float logit = of_row[static_cast<size_t>(want[i].token_id)];
        EXPECT_NEAR(got[row].top[i].log_prob - got[row].log_prob, logit, 1e-5);
      }
    }
  }
}

}  // namespace
}  // namespace tandem::log_probs_cuda_test
