// Heads of the Medusa family on the CPU.
#ifndef TANDEM_COMMON_MODEL_HEADS_CPU_HEADS_H_
#define TANDEM_COMMON_MODEL_HEADS_CPU_HEADS_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/cpu/cpu_backend.h"
#include "common/model/heads/heads_weights.h"
#include "common/model/heads/self_drafter.h"
#include "common/model/model_description.h"
#include "common/model/scratch_rows.h"
#include "kernels/thread_pool.h"

namespace tandem {

class CpuHeads final : public SelfDrafter {
 public:
  // Loads the heads of a folder for a target. Errors name the file, and the field or the tensor
  // that does not fit. The other arguments must outlive the heads. `backend` computes the target's
  // passes, and must keep features before the heads draft.
  static absl::StatusOr<std::unique_ptr<CpuHeads>> Load(const std::filesystem::path& folder,
                                                        const ModelDescription& target,
                                                        const Linear& target_output,
                                                        const CpuBackend* backend,
                                                        ThreadPool* pool);

  const std::string& name() const override { return name_; }
  uint32_t max_depth() const override { return static_cast<uint32_t>(weights_.heads.size()); }
  uint64_t weight_bytes() const override { return checkpoint_->mapped_bytes(); }
  void KeepFeature(size_t place, size_t logits_row) override;
  absl::Status Propose(std::span<GuessOrder> orders) override;

 private:
  CpuHeads(std::unique_ptr<Checkpoint> checkpoint, HeadsWeights weights, size_t hidden_size,
           const CpuBackend* backend, ThreadPool* pool);

  // Takes the features of the orders through the residual layers of the first `num_heads` heads.
  // Returns the rows that the output products take: those of a head lie together.
  ScratchRows& Transform(std::span<const GuessOrder> orders, size_t num_heads);
  // logits_ = output products of these rows.
  void ComputeLogits(ScratchRows& rows, size_t num_orders, size_t num_heads);
  // Returns the `count` likeliest tokens of a row of logits. Empty: a logit is not finite.
  std::vector<Guess> LikeliestOf(size_t row, int32_t count);

  std::string name_;
  std::unique_ptr<Checkpoint> checkpoint_;
  HeadsWeights weights_;
  size_t hidden_size_;
  const CpuBackend& backend_;
  ThreadPool& pool_;

  std::vector<std::vector<float>> features_;  // by place: [hidden]
  ScratchRows rows_[2];                       // [heads * orders, hidden] before and after a layer
  ScratchRows logits_;                        // [heads * orders, tokens that the heads know]
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_HEADS_CPU_HEADS_H_
