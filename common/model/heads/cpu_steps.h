// What drafters that guess step by step share on the CPU.
#ifndef TANDEM_COMMON_MODEL_HEADS_CPU_STEPS_H_
#define TANDEM_COMMON_MODEL_HEADS_CPU_STEPS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/cpu/cpu_layer.h"
#include "common/model/heads/step_device.h"
#include "common/model/linear.h"
#include "common/model/model_description.h"
#include "common/model/rope_table.h"
#include "common/model/scratch_rows.h"
#include "kernels/attention.h"
#include "kernels/thread_pool.h"

namespace tandem {

// Takes rows through layers, and keeps the residual stream after the last of them as the rows'
// guesses.
class CpuSteps : public StepDevice {
 public:
  absl::Status Run(const StepPass& pass) final;
  absl::StatusOr<std::vector<std::vector<Guess>>> LookAhead(std::span<const int32_t> guesses,
                                                            int32_t count) final;

 protected:
  // `model` describes the layers. `output` is the product that turns guesses into logits. `norm` is
  // their norm before it; empty: there is none. All of them must outlive this object.
  CpuSteps(const ModelDescription* model, const Linear* output, const std::vector<float>* norm,
           ThreadPool* pool);

  // Takes the rows of a pass through the layers. `layer()` has room for them.
  virtual void Compute(const StepPass& pass) = 0;

  CpuLayer& layer() { return layer_; }
  ThreadPool& pool() { return pool_; }
  const float* guess(int32_t place) const {
    return guesses_.data() + static_cast<size_t>(place) * model_.hidden_size;
  }
  // Embeddings of the rows' tokens go to the first columns of `out`, which has a row for each.
  void Embed(const Linear& embedding, ScratchRows& out);
  // Norms of the rows of `x` go to the columns of `out` from `column` on.
  void Norm(const std::vector<float>& weight, ScratchRows& x, ScratchRows& out, size_t column);
  // Attends with the queries, keys and values of a layer whose place on the pages is `index`.
  // Nobody sees the first `hidden_rows` rows of a cache.
  void Attend(const LayerWeights& weights, const StepPass& pass, size_t index, size_t hidden_rows);

 private:
  // Sets token_ids_ and positions_.
  void ReadRows(const StepPass& pass);
  // Looks ahead of at most kMaxLooks guesses.
  void LookAhead(std::span<const int32_t> guesses, int32_t count,
                 std::span<std::vector<Guess>> found);

  const ModelDescription& model_;
  const Linear& output_;
  const std::vector<float>& norm_;
  ThreadPool& pool_;
  RopeTable rope_;
  CpuLayer layer_;
  std::vector<float> guesses_;  // [kMaxGuesses, hidden]

  // State of a pass.
  std::vector<int32_t> token_ids_;
  std::vector<int32_t> positions_;
  std::vector<AttentionArgs> segments_;
  ScratchRows ends_;    // [rows, hidden] rows that the output product takes
  ScratchRows logits_;  // [rows, vocabulary]
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_HEADS_CPU_STEPS_H_
