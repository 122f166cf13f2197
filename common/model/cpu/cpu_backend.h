// The steps of the decoder on the CPU.
#ifndef TANDEM_COMMON_MODEL_CPU_CPU_BACKEND_H_
#define TANDEM_COMMON_MODEL_CPU_CPU_BACKEND_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/cpu/cpu_layer.h"
#include "common/model/decoder.h"
#include "common/model/forward_plan.h"
#include "common/model/language_model.h"
#include "common/model/model_description.h"
#include "common/model/model_weights.h"
#include "common/model/rope_table.h"
#include "common/model/row_features.h"
#include "common/model/scratch_rows.h"
#include "kernels/attention.h"
#include "kernels/thread_pool.h"

namespace tandem {

// Computes each step when it is called, with all threads of a pool. Everything is F32 except the
// matrices. The matrices are read in place.
class CpuBackend final : public DecoderBackend {
 public:
  // All arguments must outlive the backend.
  CpuBackend(const ModelDescription* model, const ModelWeights* weights, ThreadPool* pool)
      : model_(*model), weights_(*weights), pool_(*pool), rope_(*model), layer_(model, pool) {}

  absl::StatusOr<std::vector<size_t>> BeginPass(const ForwardPlan& plan) override;
  absl::Status Prepare(const RowBlock& block) override;
  absl::Status Execute(absl::FunctionRef<absl::Status()> steps) override { return steps(); }
  absl::Status Embed() override;
  absl::Status Qkv(size_t layer) override;
  absl::Status Attend(size_t layer) override;
  bool HasFeatures(size_t layer) const override { return row_features_.Has(layer); }
  absl::Status StoreFeatures(size_t layer) override;
  absl::Status KeepRows() override;
  absl::Status Output(size_t layer) override;
  absl::Status Mlp(size_t layer) override;
  absl::Status Logits() override;

  // Returns all logits of the last pass. They are valid until the next pass.
  LogitsView logits();
  // From now on, passes keep the rows that the output product takes.
  void KeepFeatures() { keeps_features_ = true; }
  // Returns the row that the output product turned into this row of logits. It is valid until the
  // next pass. PRECOND: KeepFeatures was called before the last pass.
  const float* feature(size_t logits_row) const { return features_.row(logits_row); }
  // From now on, passes write the feature of each of their rows to the row's cache.
  void Store(RowFeatures features) { row_features_ = std::move(features); }
  const RowFeatures& stored_features() const { return row_features_; }
  // Grows by two with each layer. Any thread may call this function.
  uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }

 private:
  const ModelDescription& model_;
  const ModelWeights& weights_;
  ThreadPool& pool_;
  RopeTable rope_;
  std::atomic<uint64_t> progress_ = 0;

  // State of the pass.
  const ForwardPlan* plan_ = nullptr;
  ScratchRows logits_;  // [num_logits, vocabulary]
  bool keeps_features_ = false;
  ScratchRows features_;      // [num_logits, hidden]
  RowFeatures row_features_;  // those of all rows, on the pages

  // State of the block of rows.
  RowBlock block_;
  std::vector<PlanSegment> segments_;
  std::vector<AttentionArgs> attention_;
  CpuLayer layer_;  // its rows are those that still go on: first all, later those with logits
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CPU_CPU_BACKEND_H_
