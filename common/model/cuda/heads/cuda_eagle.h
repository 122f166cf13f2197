// A layer of EAGLE on the GPU of its target.
#ifndef TANDEM_COMMON_MODEL_CUDA_HEADS_CUDA_EAGLE_H_
#define TANDEM_COMMON_MODEL_CUDA_HEADS_CUDA_EAGLE_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/cuda/cuda_backend.h"
#include "common/model/cuda/cuda_kv_memory.h"
#include "common/model/cuda/cuda_layer.h"
#include "common/model/cuda/cuda_linear.h"
#include "common/model/cuda/cuda_weights.h"
#include "common/model/cuda/heads/cuda_drafter.h"
#include "common/model/cuda/heads/likeliest_tokens.h"
#include "common/model/cuda/memory_taker.h"
#include "common/model/cuda/pass_shape.h"
#include "common/model/cuda/row_numbers.h"
#include "common/model/heads/eagle_device.h"
#include "common/model/heads/eagle_weights.h"
#include "kernels/device/device_stream.h"

namespace tandem {

// Features and guesses stay on the device, and the likeliest tokens of each guess go to the host,
// where the trees grow. Looking ahead overwrites the logits of the target's last pass.
class CudaEagle final : public EagleDevice, public CudaDrafter {
 public:
  // Errors are those of OpenedEagle::Open and CheckForGpu. `backend` computes the target's passes
  // with KeptFeatures::kAll, and must outlive the drafter.
  static absl::StatusOr<LoadedDrafter> Load(const std::filesystem::path& folder,
                                            const ModelDescription& target,
                                            const ModelWeights& target_weights,
                                            const CudaBackend* backend, const Options& options);

  absl::Status LayOut(const MemoryTaker& take) override;
  absl::Status Start(const DeviceStream* stream) override;
  absl::Status Upload(const CudaWeights& target, DeviceArena& arena,
                      const std::function<void(uint64_t)>& on_progress) override;
  void UsePages(CudaKvMemory* pages) override { pages_ = pages; }

  uint64_t weight_bytes() const override { return weight_bytes_; }
  absl::Status Check() const override { return absl::OkStatus(); }
  // These functions enqueue work. LookAhead waits for it.
  absl::Status ClearRowZero(KvCache& cache) override;
  absl::Status Run(const EaglePass& pass) override;
  absl::StatusOr<std::vector<std::vector<Guess>>> LookAhead(
      std::span<const int32_t> guesses) override;

 private:
  static constexpr size_t kMaxLooks = LikeliestTokens::kMaxRows;

  CudaEagle(OpenedEagle opened, const ModelWeights& target, const CudaBackend* backend,
            const Options& options, size_t layer_index);

  absl::Status SendNumbers(const EaglePass& pass);
  // Residual stream = product of [embedding of the token, feature before it].
  //   features  the table of the features, [entries, hidden]; numbers_.sources() has the entries
  absl::Status Fuse(const float* features, size_t rows);
  // Copies rows of a table [entries, hidden] into rows that a product takes.
  //   ids  [rows]  i32 in device memory
  absl::Status Gather(const float* table, const int32_t* ids, size_t rows, const ProductRows& to);
  absl::Status KeepGuesses(const EaglePass& pass);
  absl::Status LookAhead(std::span<const int32_t> guesses, std::span<std::vector<Guess>> found);
  absl::Status EnqueueLooks(std::span<const int32_t> guesses);

  OpenedEagle opened_;  // only the description after Upload
  const CudaBackend& backend_;
  Options options_;
  size_t layer_index_;  // the layer's place on the pages
  bool has_own_embedding_;
  bool has_own_output_;
  uint64_t weight_bytes_ = 0;
  CudaLinear fuse_;
  CudaLayerWeights weights_;
  CudaLinear embedding_;
  CudaLinear output_;
  CudaLayer layer_;
  RowNumbers numbers_;
  const DeviceStream* stream_ = nullptr;
  CudaKvMemory* pages_ = nullptr;

  ProductRows input_;            // [kMaxRows, 2 * hidden]
  float* guesses_ = nullptr;     // [kMaxGuesses, hidden]
  int32_t* all_rows_ = nullptr;  // [kMaxRows] 0, 1, …
  int32_t* looks_ = nullptr;     // [kMaxLooks] guesses to look ahead of
  PinnedMemory sent_looks_;      // [kMaxLooks] int32_t
  LikeliestTokens likeliest_;

  // State of a pass.
  std::vector<int32_t> token_ids_;
  std::vector<int32_t> positions_;
  std::vector<int32_t> sources_;
  std::vector<RowNumbers::Sequence> sequences_;
  PassShape shape_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CUDA_HEADS_CUDA_EAGLE_H_
