#include "common/model/cuda/heads/likeliest_tokens.h"

#include <algorithm>

#include "common/status.h"
#include "kernels/sampling/log_probs_report.h"

namespace tandem {

static_assert(kGuessesToTransform <= kMaxTopLogProbs);

absl::Status LikeliestTokens::Start(const DeviceStream* stream) {
  stream_ = stream;
  TANDEM_ASSIGN_OR_RETURN(reports_, PinnedMemory::Create(kMaxRows * sizeof(DeviceReport)));
  return absl::OkStatus();
}

absl::Status LikeliestTokens::Enqueue(const CudaBackend& backend, size_t rows,
                                      size_t vocabulary_size, int32_t count) {
  TANDEM_RETURN_IF_ERROR(ReportRows({.rows = rows,
                                     .vocabulary_size = vocabulary_size,
                                     .stride = backend.logits_stride(),
                                     .logits = backend.logits_memory(),
                                     .num_top = count,
                                     .reports = device_reports_},
                                    stream_->get()));
  return stream_->Copy(reports_.data(), device_reports_, rows * sizeof(*device_reports_));
}

std::vector<Guess> LikeliestTokens::Of(size_t row, int32_t count) const {
  const DeviceReport& report = static_cast<const DeviceReport*>(reports_.data())[row];
  const int32_t num_guesses = std::clamp(report.num_top, 0, count);
  std::vector<Guess> guesses;
  guesses.reserve(static_cast<size_t>(num_guesses));
  for (int32_t i = 0; i < num_guesses; ++i) {
    guesses.push_back(GuessOf(report.top[i], report.log_prob));
  }
  return guesses;
}

}  // namespace tandem
