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

  // Sets token_ids_, positions_ and states_.
  void ReadRows(const EaglePass& pass);
  // Embeddings of the tokens go to the first columns of input_, which has `columns`.
  void Embed(size_t columns);
  // EAGLE-1 and EAGLE-2: residual stream = product of [embedding, feature].
  void Fuse();
  // EAGLE-3: residual stream = product of the target's states, or a guess. input_ = [norm of the
  // embedding, norm of the residual stream].
  void BeginWithStates(bool are_guesses);
  // Norms of the rows of `x` go to the columns of `out` from `column` on.
  void Norm(const std::vector<float>& weight, ScratchRows& x, ScratchRows& out, size_t column);
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
  std::vector<const float*> states_;  // what each row reads: a feature or a guess
  std::vector<int32_t> positions_;
  std::vector<AttentionArgs> segments_;
  ScratchRows features_;  // [rows, parts of the feature * hidden]
  ScratchRows input_;     // [rows, 2 * hidden]
  ScratchRows ends_;      // [rows, hidden] rows that the output product takes
  ScratchRows logits_;    // [rows, vocabulary]
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_HEADS_CPU_EAGLE_H_
