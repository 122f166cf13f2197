// Rows of logits in device memory, and the parameters of requests in the form that the sampling
// kernels take.
#ifndef TANDEM_TESTS_CUDA_KERNELS_DEVICE_ROWS_H_
#define TANDEM_TESTS_CUDA_KERNELS_DEVICE_ROWS_H_

#include <utility>
#include <vector>

#include "kernels/sampling/draw.h"
#include "kernels/sampling/transform/transform.h"
#include "tests/cuda/kernels/device_test.h"

namespace tandem::testing {

class DeviceRowsTest : public DeviceTest {
 protected:
  using Rows = std::vector<std::vector<float>>;

  // Rows have the same length. After each row are `kGap` floats that no kernel may touch.
  static constexpr size_t kGap = 3;
  static constexpr float kUntouched = 7.0f;

  float* UploadRows(const Rows& rows) {
    std::vector<float> flat;
    for (const std::vector<float>& row : rows) {
      flat.insert(flat.end(), row.begin(), row.end());
      flat.insert(flat.end(), kGap, kUntouched);
    }
    return Upload(flat);
  }

  Rows DownloadRows(const float* memory, size_t count, size_t size) {
    const std::vector<float> flat = Download(memory, count * (size + kGap));
    Rows rows;
    for (size_t row = 0; row < count; ++row) {
      const auto begin = flat.begin() + static_cast<ptrdiff_t>(row * (size + kGap));
      rows.emplace_back(begin, begin + static_cast<ptrdiff_t>(size));
      EXPECT_EQ(begin[static_cast<ptrdiff_t>(size)], kUntouched);
    }
    return rows;
  }

  static RowSampling SamplingOf(const SamplingParams& params) {
    return {params.temperature, params.top_p, params.top_k, params.min_p};
  }

  static RowDraw DrawOf(const SamplingParams& params) {
    if (params.greedy()) return RowDraw::kGreedy;
    return params.reproducible ? RowDraw::kCoupled : RowDraw::kPlain;
  }

  //   counts   token counts that CountsOf returned
  //   earlier  [num_earlier]  in device memory
  RowAdjustment AdjustmentOf(const SamplingParams& params, int32_t num_output_tokens,
                             const uint32_t* counts, const int32_t* earlier, int32_t num_earlier) {
    RowAdjustment row;
    row.repetition_penalty = params.repetition_penalty;
    row.presence_penalty = params.presence_penalty;
    row.frequency_penalty = params.frequency_penalty;
    if (HasPenalties(params)) {
      row.counts = counts;
      row.earlier = earlier;
      row.num_earlier = num_earlier;
    }
    std::vector<int32_t> ids;
    std::vector<float> biases;
    for (const auto& [id, bias] : params.logit_bias) {
      ids.push_back(id);
      biases.push_back(bias);
    }
    row.num_biases = static_cast<int32_t>(ids.size());
    row.bias_token_ids = Upload(ids);
    row.biases = Upload(biases);
    if (num_output_tokens < params.min_tokens) {
      row.num_held_back = static_cast<int32_t>(params.held_back_token_ids.size());
      row.held_back_token_ids = Upload(params.held_back_token_ids);
    }
    return row;
  }

  // Counts tokens on the device. Returns the counts in device memory.
  uint32_t* CountsOf(const std::vector<int32_t>& prompt, const std::vector<int32_t>& output,
                     size_t vocabulary_size) {
    uint32_t* const counts = Upload(std::vector<uint32_t>(vocabulary_size));
    for (const auto& [ids, is_output] : {std::pair(prompt, false), std::pair(output, true)}) {
      const absl::Status status = CountTokens(
          {.count = ids.size(), .token_ids = Upload(ids), .is_output = is_output, .counts = counts},
          stream());
      EXPECT_TRUE(status.ok()) << status;
    }
    return counts;
  }

  std::vector<int32_t> RandomIds(size_t count, size_t vocabulary_size) {
    std::vector<int32_t> ids(count);
    for (int32_t& id : ids) id = static_cast<int32_t>(random_() % vocabulary_size);
    return ids;
  }
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_CUDA_KERNELS_DEVICE_ROWS_H_
