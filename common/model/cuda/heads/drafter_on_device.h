// Heads that a CudaModel gives out: a drafter, and the device memory that is its own.
#ifndef TANDEM_COMMON_MODEL_CUDA_HEADS_DRAFTER_ON_DEVICE_H_
#define TANDEM_COMMON_MODEL_CUDA_HEADS_DRAFTER_ON_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "common/model/cuda/cuda_kv_memory.h"
#include "common/model/cuda/cuda_weights.h"
#include "common/model/cuda/heads/cuda_drafter.h"
#include "common/model/heads/self_drafter.h"
#include "kernels/device/device_arena.h"
#include "kernels/device/device_stream.h"

namespace tandem {

class DrafterOnDevice final : public SelfDrafter {
 public:
  explicit DrafterOnDevice(LoadedDrafter loaded)
      : drafter_(std::move(loaded.drafter)), device_(*loaded.device) {}

  CudaDrafter& device() { return device_; }
  // Brings the drafter to the device, into memory that it takes for this. For a drafter that was
  // not loaded with its model, whose memory is that of the model. RESOURCE_EXHAUSTED: the device
  // has too little memory. Other errors are those of CudaDrafter. Waits for the device, and calls
  // `on_progress` meanwhile.
  absl::Status Bring(const CudaWeights& target, const DeviceStream* stream, CudaKvMemory* pages,
                     const std::function<void()>& on_progress);

  const std::string& name() const override { return drafter_->name(); }
  uint32_t max_depth() const override { return drafter_->max_depth(); }
  uint64_t weight_bytes() const override { return drafter_->weight_bytes(); }
  void KeepFeature(size_t place, size_t logits_row) override {
    drafter_->KeepFeature(place, logits_row);
  }
  size_t num_kv_layers() const override { return drafter_->num_kv_layers(); }
  RowFeatures row_features() const override { return drafter_->row_features(); }
  absl::Status CatchUp(std::span<const TextRows> texts) override {
    return drafter_->CatchUp(texts);
  }
  absl::Status Propose(std::span<GuessOrder> orders) override { return drafter_->Propose(orders); }
  uint64_t progress() const override { return drafter_->progress(); }

 private:
  DeviceArena arena_;  // outlives the drafter; empty if the memory is the model's
  std::unique_ptr<SelfDrafter> drafter_;
  CudaDrafter& device_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CUDA_HEADS_DRAFTER_ON_DEVICE_H_
