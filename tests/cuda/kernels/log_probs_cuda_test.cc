// Compares argmax and the transforms on a device with those of the CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

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

TEST_F(LogProbsCudaTest, ArgmaxIsTheLowestOfTheLargestAndNoneIfSomethingIsNotFinite) {
  const size_t size = 1300;
  std::vector<std::vector<float>> rows(5, Uniform(size));
  rows[0][700] = rows[0][1299] = 3;
  rows[1].assign(size, -5.0f);
  rows[2][1] = std::numeric_limits<float>::quiet_NaN();
  rows[3][1299] = kMinusInfinity;
  rows[4][0] = std::numeric_limits<float>::infinity();
  std::vector<float> flat;
  for (const std::vector<float>& row : rows) flat.insert(flat.end(), row.begin(), row.end());
  int32_t* const ids = Upload(std::vector<int32_t>(rows.size(), 99));
  const DeviceArgmaxArgs args{.rows = rows.size(),
                              .vocabulary_size = size,
                              .stride = size,
                              .logits = Upload(flat),
                              .token_ids = ids};
  ASSERT_TRUE(Argmax(args, stream()).ok());
  EXPECT_EQ(Download(ids, rows.size()), (std::vector<int32_t>{700, 0, -1, -1, -1}));
}

}  // namespace
}  // namespace tandem::log_probs_cuda_test
