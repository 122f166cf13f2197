// Compares the transforms of the context and the draws on a device with those of the CPU.
#include <cmath>
#include <limits>

#include "tests/cuda/kernels/device_rows.h"

namespace tandem::draw_cuda_test {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

class DrawCudaTest : public testing::DeviceRowsTest {
 protected:
  std::vector<int32_t> DrawAll(const Rows& rows, const std::vector<RowToDraw>& draws,
                               std::vector<int32_t> not_finite = {}) {
    not_finite.resize(rows.size());
    int32_t* const ids = Upload(std::vector<int32_t>(rows.size(), 99));
    const absl::Status status = DrawTokens({.rows = rows.size(),
                                            .vocabulary_size = rows[0].size(),
                                            .stride = rows[0].size() + kGap,
                                            .draws = Upload(draws),
                                            .values = UploadRows(rows),
                                            .not_finite = Upload(not_finite),
                                            .token_ids = ids},
                                           stream());
    EXPECT_TRUE(status.ok()) << status;
    return Download(ids, rows.size());
  }
};

TEST_F(DrawCudaTest, AdjustsLogitsToTheBitsOfTheCpu) {
  const size_t size = 9000;  // more than two stretches; the last stretch is short
  SamplingParams plain;
  SamplingParams penalized;
  penalized.repetition_penalty = 1.3f;
  penalized.presence_penalty = 0.7f;
  penalized.frequency_penalty = -0.4f;
  SamplingParams everything = penalized;
  everything.logit_bias = {{0, 4.5f}, {8999, -100.0f}, {4096, 3e38f}, {77, 0.25f}};
  everything.min_tokens = 5;
  everything.held_back_token_ids = {2, 8191, 2, 4096};
  SamplingParams huge;
  huge.repetition_penalty = 1e38f;
  const std::vector<int32_t> prompt = {5, 6, 6, 8000, 0};
  const std::vector<int32_t> output = {6, 9, 9, 9, 4095};
  const std::vector<int32_t> drafted = {9, 11, 8192};
  const uint32_t* const counts = CountsOf(prompt, output, size);
  const int32_t* const earlier = Upload(drafted);

  Rows rows;
  std::vector<RowAdjustment> adjustments;
  Rows want;
  for (const SamplingParams& params : {plain, penalized, everything, huge}) {
    for (int32_t num_earlier = 0; num_earlier <= 3; ++num_earlier) {
      rows.push_back(Uniform(size, -9, 9));
      const int32_t num_output = 5 - 3 + num_earlier;
      adjustments.push_back(AdjustmentOf(params, num_output, counts, earlier, num_earlier));
      TokenCounts context;
      for (const int32_t id : prompt) context.Add(id, false);
      for (const int32_t id : output) context.Add(id, true);
      for (int32_t i = 0; i < num_earlier; ++i) context.Add(drafted[static_cast<size_t>(i)], true);
      want.emplace_back(size);
      AdjustLogits(rows.back(), params, context, num_output, want.back());
    }
  }
  Rows raw = rows;
  raw.push_back(Uniform(size));
  raw.back()[8999] = std::numeric_limits<float>::quiet_NaN();
  raw.push_back(Uniform(size));
  raw.back()[0] = kMinusInfinity;
  adjustments.resize(raw.size());

  float* const adjusted = UploadRows(raw);
  int32_t* const not_finite = Upload(std::vector<int32_t>(raw.size(), 5));
  const absl::Status status = AdjustLogits({.rows = raw.size(),
                                            .vocabulary_size = size,
                                            .stride = size + kGap,
                                            .adjustments = Upload(adjustments),
                                            .logits = UploadRows(raw),
                                            .adjusted = adjusted,
                                            .not_finite = not_finite},
                                           stream());
  ASSERT_TRUE(status.ok()) << status;
  const Rows got = DownloadRows(adjusted, raw.size(), size);
  for (size_t row = 0; row < want.size(); ++row) EXPECT_EQ(got[row], want[row]) << row;
  std::vector<int32_t> flags(want.size());
  flags.insert(flags.end(), {1, 1});
  EXPECT_EQ(Download(not_finite, raw.size()), flags);
}

TEST_F(DrawCudaTest, DrawsTheTokensThatTheCpuDraws) {
  for (const size_t size : {1, 2, 17, 257, 3001, 128256}) {
    Rows rows;
    std::vector<RowToDraw> draws;
    std::vector<int32_t> want;
    for (uint64_t i = 0; i < 60; ++i) {
      std::vector<float> log_probs(size);
      SamplingParams params;
      params.top_p = i % 2 == 0 ? 1.0f : 0.8f;
      LogProbs(Uniform(size, -6, 6), params, log_probs);
      const DrawKey key{.seed = 0x1234567890ull * (i + 1), .position = i << 30, .drafter = 3};
      rows.push_back(log_probs);
      switch (i % 4) {
        case 0:
          draws.push_back({RowDraw::kGreedy, key});
          want.push_back(Argmax(log_probs));
          break;
        case 1:
          draws.push_back({RowDraw::kCoupled, key});
          want.push_back(DrawCoupled(log_probs, key));
          break;
        case 2:
          draws.push_back({RowDraw::kPlain, key});
          want.push_back(DrawFromLogProbs(log_probs, tandem::Uniform(key, DrawPurpose::kPropose)));
          break;
        default:
          draws.push_back({RowDraw::kNone, key});
          want.push_back(-1);
      }
    }
    EXPECT_EQ(DrawAll(rows, draws), want) << size << " entries";
  }
}

TEST_F(DrawCudaTest, LeavesTheRowsThatTheCpuDrawsSiblingsFrom) {
  SamplingParams greedy;
  greedy.temperature = 0;
  SamplingParams coupled;
  coupled.reproducible = true;
  const std::vector<std::pair<RowDraw, SamplingParams>> ways = {
      {RowDraw::kGreedy, greedy}, {RowDraw::kCoupled, coupled}, {RowDraw::kPlain, {}}};
  for (const size_t size : {1, 2, 17, 3001}) {
    Rows rows;
    Rows want;
    std::vector<RowToDraw> draws;
    std::vector<int32_t> token_ids;
    for (size_t i = 0; i < 12; ++i) {
      const auto& [how, params] = ways[i % 3];
      std::vector<float> row(size);
      // In half of the rows, what is left is hardly possible.
      SamplingParams of_row;
      of_row.temperature = i % 2 == 0 ? 1.0f : 0.03f;
      LogProbs(Uniform(size, -6, 6), of_row, row);
      rows.push_back(row);
      token_ids.push_back(i == 11 ? -1 : static_cast<int32_t>(i % size));
      draws.push_back({i == 10 ? RowDraw::kNone : how, {.seed = i}});
      want.push_back(row);
      const DraftDraw before{.token_id = token_ids.back(), .drawn_from = row};
      if (i < 10) (void)DrawSibling(before, params, draws.back().key, want.back());
    }
    float* const values = UploadRows(rows);
    const absl::Status status = LeaveOutTokens({.rows = rows.size(),
                                                .vocabulary_size = size,
                                                .stride = size + kGap,
                                                .draws = Upload(draws),
                                                .values = values,
                                                .token_ids = Upload(token_ids)},
                                               stream());
    ASSERT_TRUE(status.ok()) << status;
    const Rows got = DownloadRows(values, rows.size(), size);
    for (size_t row = 0; row < rows.size(); ++row) {
      for (size_t x = 0; x < size; ++x) {
        if (want[row][x] == kMinusInfinity || draws[row].how != RowDraw::kPlain) {
          EXPECT_EQ(got[row][x], want[row][x]) << size << " entries, row " << row;
        } else {
          EXPECT_NEAR(got[row][x], want[row][x], 1e-4) << size << " entries, row " << row;
        }
      }
    }
  }
}

TEST_F(DrawCudaTest, RowsWithoutWeightGiveTheirLargestAndCutTokensAreNeverDrawn) {
  // As floats, all probabilities of the first row are 0. Coupled scores still differ.
  std::vector<float> tiny(40, kMinusInfinity);
  tiny[7] = -2000.0f;
  tiny[9] = -1000.0f;
  std::vector<float> single(40, kMinusInfinity);
  single[39] = 0.0f;
  Rows rows;
  std::vector<RowToDraw> draws;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const RowDraw how = seed % 2 == 0 ? RowDraw::kPlain : RowDraw::kCoupled;
    rows.insert(rows.end(), {tiny, single});
    draws.insert(draws.end(), 2, {how, {.seed = seed}});
  }
  const std::vector<int32_t> got = DrawAll(rows, draws);
  for (size_t row = 0; row < rows.size(); row += 2) {
    EXPECT_EQ(got[row], 9);
    EXPECT_EQ(got[row + 1], 39);
  }
  EXPECT_EQ(DrawAll({single}, {{RowDraw::kPlain, {}}}, {1}), std::vector<int32_t>{-1});
}

TEST_F(DrawCudaTest, PlainDrawsFollowTheRow) {
  // 1,500 draws of a row of 5 give chi-squared with 4 degrees of freedom, whose tail is 1e-6 at
  // 33.4.
  const std::vector<double> probs = {0.05, 0.5, 0.0, 0.15, 0.3};
  std::vector<float> log_probs;
  for (const double p : probs) log_probs.push_back(static_cast<float>(std::log(p)));
  constexpr size_t kDraws = 1500;
  const auto chi_squared = [&](uint64_t step) {
    std::vector<RowToDraw> draws;
    for (uint64_t i = 0; i < kDraws; ++i) {
      draws.push_back({RowDraw::kPlain, {.seed = 11, .position = i * step}});
    }
    std::vector<double> found(probs.size());
    for (const int32_t id : DrawAll(Rows(kDraws, log_probs), draws)) {
      found[static_cast<size_t>(id)] += 1;
    }
    EXPECT_EQ(found[2], 0);
    double sum = 0;
    for (size_t i = 0; i < probs.size(); ++i) {
      if (probs[i] == 0) continue;
      sum += std::pow(found[i] - probs[i] * kDraws, 2) / (probs[i] * kDraws);
    }
    return sum;
  };
  EXPECT_LT(chi_squared(1), 33.4);
  EXPECT_GT(chi_squared(0), 500) << "the test detects one key for all draws";
}

}  // namespace
}  // namespace tandem::draw_cuda_test
