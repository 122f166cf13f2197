// Heads of the Medusa family on the GPU of their target.
#ifndef TANDEM_COMMON_MODEL_CUDA_HEADS_CUDA_HEADS_H_
#define TANDEM_COMMON_MODEL_CUDA_HEADS_CUDA_HEADS_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/checkpoint/checkpoint.h"
#include "common/model/cuda/cuda_backend.h"
#include "common/model/cuda/cuda_linear.h"
#include "common/model/cuda/cuda_weights.h"
#include "common/model/cuda/heads/cuda_drafter.h"
#include "common/model/cuda/heads/likeliest_tokens.h"
#include "common/model/cuda/memory_taker.h"
#include "common/model/heads/heads_weights.h"
#include "common/model/heads/self_drafter.h"
#include "common/model/linear.h"
#include "common/model/model_description.h"
#include "kernels/device/device_arena.h"
#include "kernels/device/device_stream.h"

namespace tandem {

// Features stay on the device, and the likeliest tokens of each head go to the host, where the
// trees grow.
class CudaHeads final : public SelfDrafter, public CudaDrafter {
 public:
  // Largest number of rows, each of one head and one order, that are computed together.
  static constexpr size_t kMaxRows = LikeliestTokens::kMaxRows;
  static_assert(HeadsDescription::kMaxHeads <= kMaxRows);

  // Reads the heads of a folder for a target. Errors name the file, and the field or the tensor
  // that does not fit. `backend` computes the target's passes with KeepFeatures, and
  // must outlive the heads.
  static absl::StatusOr<std::unique_ptr<CudaHeads>> Load(const std::filesystem::path& folder,
                                                         const ModelDescription& target,
                                                         const Linear& target_output,
                                                         const CudaBackend* backend,
                                                         const Options& options);

  absl::Status LayOut(const MemoryTaker& take) override;
  absl::Status Start(const DeviceStream* stream) override;
  absl::Status Upload(const CudaWeights& target, DeviceArena& arena,
                      const std::function<void(uint64_t)>& on_progress) override;

  const std::string& name() const override { return name_; }
  uint32_t max_depth() const override { return static_cast<uint32_t>(num_heads_); }
  uint64_t weight_bytes() const override { return weight_bytes_; }
  // Enqueues a copy on the stream. If that fails, the next Propose says so. PRECOND: `place` is
  // less than Options::max_places, and `logits_row` is less than CudaBackend::kMaxLogitsRows.
  void KeepFeature(size_t place, size_t logits_row) override;
  // Waits for the stream. Overwrites the logits of the target's last pass.
  absl::Status Propose(std::span<GuessOrder> orders) override;

 private:
  struct Head {
    std::vector<CudaLinear> layers;
    CudaLinear output;
  };

  CudaHeads(std::unique_ptr<Checkpoint> checkpoint, HeadsWeights weights,
            const ModelDescription& target, const CudaBackend* backend, const Options& options);

  // Enqueues all work for a part of the orders: likeliest_ gets the tokens of the first `num_heads`
  // heads. Those of a head lie together.
  absl::Status Enqueue(std::span<const GuessOrder> orders, size_t num_heads);
  // Takes the features through the residual layers, and sets `last` to the rows that the output
  // products take.
  absl::Status Transform(size_t num_orders, size_t num_heads, const ProductRows** last);
  absl::Status ComputeLogits(const ProductRows& rows, size_t num_orders, size_t num_heads);
  // Grows the trees of these orders.
  void Grow(std::span<GuessOrder> orders, size_t num_heads) const;

  std::string name_;
  size_t num_heads_;
  size_t hidden_size_;
  const CudaBackend& backend_;
  Options options_;
  uint64_t weight_bytes_ = 0;
  std::unique_ptr<Checkpoint> checkpoint_;  // null after Upload
  HeadsWeights weights_;                    // without heads after Upload
  std::vector<Head> heads_;
  const DeviceStream* stream_ = nullptr;

  float* features_ = nullptr;  // [max_places, hidden]
  int32_t* places_ = nullptr;  // [kMaxRows] the places of the features of the rows
  ProductRows rows_[2];        // [kMaxRows, hidden] before and after a layer
  PinnedMemory sent_places_;   // [kMaxRows] int32_t
  LikeliestTokens likeliest_;
  absl::Status kept_;  // whether the copies since the last Propose were enqueued
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CUDA_HEADS_CUDA_HEADS_H_
