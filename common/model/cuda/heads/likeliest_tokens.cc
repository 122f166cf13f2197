#include "common/model/cuda/heads/likeliest_tokens.h"

#include "common/model/heads/guess_tree.h"
#include "common/status.h"
#include "kernels/sampling/log_probs_report.h"

namespace tandem {

static_assert(kGuessesOfHead <= kMaxTopLogProbs);

absl::Status LikeliestTokens::Start(const DeviceStream* stream) {
  stream_ = stream;
  TANDEM_ASSIGN_OR_RETURN(reports_, PinnedMemory::Create(kMaxRows * sizeof(DeviceReport)));
  return absl::OkStatus();
}

absl::Status LikeliestTokens::Enqueue(const CudaBackend& backend, size_t rows,
                                      size_t vocabulary_size) {
  TANDEM_RETURN_IF_ERROR(ReportRows({.rows = rows,
                                     .vocabulary_size = vocabulary_size,
                                     .stride = backend.logits_stride(),
                                     .logits = backend.logits_memory(),
                                     .num_top = kGuessesOfHead,
                                     .reports = device_reports_},
                                    stream_->get()));
  return stream_->Copy(reports_.data(), device_reports_, rows * sizeof(*device_reports_));
}

std::span<const TopLogProb> LikeliestTokens::Of(size_t row) const {
  const DeviceReport& report = static_cast<const DeviceReport*>(reports_.data())[row];
  return std::span(report.top).first(static_cast<size_t>(report.num_top));
}

}  // namespace tandem
