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
#include "common/model/cuda/heads/cuda_eagle_weights.h"
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
  // Errors are those of OpenedEagle::Open and CheckForGpu. `backend` computes the target's passes,
  // and must outlive the drafter.
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

  CudaEagle(OpenedEagle opened, const CudaBackend* backend, const Options& options,
            size_t layer_index);

  absl::Status SendNumbers(const EaglePass& pass);
  // EAGLE-1 and EAGLE-2: residual stream = product of [embedding, what the row reads], and
  // layer_.normed() = the same rows.
  absl::Status Fuse(const float* states, size_t rows);
  // EAGLE-3: residual stream = product of the target's states, or a guess. joined_ = [norm of the
  // embedding, norm of the residual stream].
  absl::Status BeginWithStates(const float* states, bool are_guesses, size_t rows);
  // Copies rows of a table [entries, size] into rows that a product takes.
  //   ids  [rows]  i32 in device memory; null: 0, 1, …
  absl::Status Gather(const float* table, size_t size, const int32_t* ids, size_t rows,
                      const ProductRows& to);
  // Looks the embeddings of the rows' tokens up.
  absl::Status EmbedTokens(size_t rows, const ProductRows& to);
  // Norms of rows [rows, hidden] go to rows that a product with `linear` takes.
  absl::Status Norm(const float* weight, const float* x, size_t rows, const CudaLinear& linear,
                    const ProductRows& to);
  absl::Status KeepGuesses(const EaglePass& pass);
  absl::Status LookAhead(std::span<const int32_t> guesses, std::span<std::vector<Guess>> found);
  absl::Status EnqueueLooks(std::span<const int32_t> guesses);

  OpenedEagle opened_;  // only the description after Upload
  const CudaBackend& backend_;
  Options options_;
  size_t layer_index_;  // the layer's place on the pages
  uint64_t weight_bytes_;
  CudaEagleWeights weights_;
  CudaLayer layer_;
  RowNumbers numbers_;
  const DeviceStream* stream_ = nullptr;
  CudaKvMemory* pages_ = nullptr;

  ProductRows fused_;         // [kMaxRows, what EagleWeights::fuse takes]
  ProductRows joined_;        // [kMaxRows, 2 * hidden], only in EAGLE-3
  float* floats_ = nullptr;   // [kMaxRows, hidden], only in EAGLE-3
  float* guesses_ = nullptr;  // [kMaxGuesses, hidden]
  int32_t* looks_ = nullptr;  // [kMaxLooks] guesses to look ahead of
  PinnedMemory sent_looks_;   // [kMaxLooks] int32_t
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
