// The likeliest tokens of rows of logits on a GPU, brought to the host.
#ifndef TANDEM_COMMON_MODEL_CUDA_HEADS_LIKELIEST_TOKENS_H_
#define TANDEM_COMMON_MODEL_CUDA_HEADS_LIKELIEST_TOKENS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/model/cuda/cuda_backend.h"
#include "common/model/cuda/memory_taker.h"
#include "common/model/heads/trees/guess_tree.h"
#include "kernels/device/device_stream.h"
#include "kernels/sampling/accept_reject.h"

namespace tandem {

// The calls are LayOut and Start; then Enqueue and, once the stream is waited for, Of.
class LikeliestTokens {
 public:
  static constexpr size_t kMaxRows = CudaBackend::kMaxLogitsRows;

  absl::Status LayOut(const MemoryTaker& take) {
    return take(&device_reports_, kMaxRows, "guesses of the heads");
  }
  // `stream` is used from then on. This object must outlive the work on the stream.
  absl::Status Start(const DeviceStream* stream);

  // Enqueues the search for `count` tokens in each of the first `rows` rows of
  // backend.logits_memory(), and a copy to the host. Errors come from the device. PRECOND:
  // rows <= kMaxRows, 1 <= count <= kGuessesToTransform.
  absl::Status Enqueue(const CudaBackend& backend, size_t rows, size_t vocabulary_size,
                       int32_t count);
  // Returns the `count` likeliest tokens of a row, as LikeliestGuesses does. PRECOND: so many were
  // searched for.
  std::vector<Guess> Of(size_t row, int32_t count) const;

 private:
  const DeviceStream* stream_ = nullptr;
  DeviceReport* device_reports_ = nullptr;  // [kMaxRows]
  PinnedMemory reports_;                    // [kMaxRows] DeviceReport
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CUDA_HEADS_LIKELIEST_TOKENS_H_
