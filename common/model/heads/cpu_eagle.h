// A layer of EAGLE on the CPU.
#ifndef TANDEM_COMMON_MODEL_HEADS_CPU_EAGLE_H_
#define TANDEM_COMMON_MODEL_HEADS_CPU_EAGLE_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/cpu/cpu_layer.h"
#include "common/model/heads/eagle.h"
#include "common/model/heads/eagle_device.h"
#include "common/model/heads/eagle_weights.h"
#include "common/model/model_description.h"
#include "common/model/rope_table.h"
#include "common/model/scratch_rows.h"
#include "kernels/attention.h"
#include "kernels/thread_pool.h"

namespace tandem {

class CpuEagle final : public EagleDevice {
 public:
  // Loads the layer of a folder for a target. Errors are those of OpenedEagle::Open. The other
  // arguments must outlive the drafter.
  static absl::StatusOr<std::unique_ptr<Eagle>> Load(const std::filesystem::path& folder,
                                                     const ModelDescription& target,
                                                     const ModelWeights& target_weights,
                                                     ThreadPool* pool);

  uint64_t weight_bytes() const override { return opened_.checkpoint->mapped_bytes(); }
  absl::Status Check() const override { return opened_.checkpoint->CheckWhole(); }
  absl::Status ClearRowZero(KvCache& cache) override;
  absl::Status Run(const EaglePass& pass) override;
  absl::StatusOr<std::vector<std::vector<Guess>>> LookAhead(
      std::span<const int32_t> guesses) override;

 private:
  CpuEagle(OpenedEagle opened, size_t layer_index, ThreadPool* pool);

  // The layer's input: [rows, embedding of the token, feature before it].
  void Embed(const EaglePass& pass);
  // Sets segments_ to the rows of each sequence.
  void FindSegments(const EaglePass& pass);
  // Looks ahead of at most kMaxLooks guesses.
  void LookAhead(std::span<const int32_t> guesses, std::span<std::vector<Guess>> found);

  OpenedEagle opened_;
  size_t layer_index_;  // the layer's place on the pages
  ThreadPool& pool_;
  RopeTable rope_;
  CpuLayer layer_;
  std::vector<float> guesses_;  // [kMaxGuesses, hidden]

  // State of a pass.
  std::vector<int32_t> token_ids_;
  std::vector<const float*> features_;
  std::vector<int32_t> positions_;
  std::vector<AttentionArgs> segments_;
  ScratchRows input_;   // [rows, 2 * hidden]
  ScratchRows ends_;    // [rows, hidden] rows that the output product takes
  ScratchRows logits_;  // [rows, vocabulary]
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_HEADS_CPU_EAGLE_H_
