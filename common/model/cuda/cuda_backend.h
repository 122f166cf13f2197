// The steps of the decoder on one NVIDIA GPU.
#ifndef TANDEM_COMMON_MODEL_CUDA_CUDA_BACKEND_H_
#define TANDEM_COMMON_MODEL_CUDA_CUDA_BACKEND_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/cuda/cuda_kv_memory.h"
#include "common/model/cuda/cuda_layer.h"
#include "common/model/cuda/cuda_weights.h"
#include "common/model/cuda/device_sampler.h"
#include "common/model/cuda/memory_taker.h"
#include "common/model/cuda/pass_graphs.h"
#include "common/model/cuda/pass_shape.h"
#include "common/model/cuda/row_numbers.h"
#include "common/model/decoder.h"
#include "common/model/forward_plan.h"
#include "common/model/language_model.h"
#include "common/model/model_description.h"
#include "common/model/row_features.h"
#include "kernels/device/device_stream.h"

namespace tandem {

// Enqueues each step on one stream. Prepare does the host's work for a block before the steps: it
// sends RowNumbers and sets the PassShape. The steps take nothing else from the host. The steps of
// a block can therefore be recorded as a graph, and the graph serves every block of that shape.
class CudaBackend final : public DecoderBackend {
 public:
  // Largest number of rows in a block. Each takes scratch memory, and products of more rows give
  // the multiprocessors of a large GPU more even shares (kernels/matmul_bf16/tiles.h).
  static constexpr size_t kMaxBlockRows = 2048;
  static_assert(kMaxBlockRows <= RowSet::kMaxRows);
  // Largest number of rows of logits in a block, and in a pass whose logits stay on the device.
  static constexpr size_t kMaxLogitsRows = DeviceSampler::kMaxRows;

  struct Options {
    size_t max_context = 0;                 // largest number of rows of a cache
    size_t max_block_rows = kMaxBlockRows;  // longer passes are cut; at most kMaxBlockRows
    bool use_graphs = true;                 // blocks of few rows are started as graphs
    // Products with BF16 weights take activations in three BF16 parts instead of rounding them to
    // BF16.
    bool exact_activations = true;
    // Called at most once: when graphs fail, and blocks go kernel by kernel from then on although
    // use_graphs is set.
    std::function<void(const absl::Status& why)> on_no_graphs = {};
  };
  // The source of a pass's tokens, and the destination of its logits.
  struct Ends {
    // [rows of all items] in device memory. These ids replace the items' ids unless this is null.
    const int32_t* token_ids = nullptr;
    bool logits_to_host = false;
  };

  // `model` and `weights` must outlive the backend. The weights may be filled in until the first
  // pass.
  CudaBackend(const ModelDescription* model, const CudaWeights* weights, const Options& options);

  // Called before LayOut. Passes keep the features of their first rows of logits: the rows that the
  // output product takes, as F32.
  void KeepFeatures() { keeps_features_ = true; }
  // From now on, passes write the feature of each of their rows to the pages.
  void Store(RowFeatures features) {
    row_features_ = std::move(features);
    graphs_.Forget();
  }
  const RowFeatures& stored_features() const { return row_features_; }
  absl::Status LayOut(const MemoryTaker& take);
  // Fills in the device memory that never changes. Called once, after the memory was taken.
  // `stream` is used from then on, and the backend must outlive the work on the stream.
  absl::Status Start(const DeviceStream* stream);
  // Must be called before the first pass. `kv` must outlive the passes.
  void UsePages(const CudaKvMemory* kv) { kv_ = kv; }
  // Both take effect with the next pass.
  void SetEnds(const Ends& ends) { ends_ = ends; }
  void UseGraphs(bool use) { options_.use_graphs = use; }

  // INVALID_ARGUMENT: a path of a tree is too long, rows reach past max_context, or there are too
  // many rows of logits.
  absl::StatusOr<std::vector<size_t>> BeginPass(const ForwardPlan& plan) override;
  absl::Status Prepare(const RowBlock& block) override;
  absl::Status Execute(absl::FunctionRef<absl::Status()> steps) override;
  absl::Status Embed() override;
  absl::Status Qkv(size_t layer) override;
  absl::Status Attend(size_t layer) override;
  bool HasFeatures(size_t layer) const override { return row_features_.Has(layer); }
  absl::Status StoreFeatures(size_t layer) override;
  absl::Status KeepRows() override;
  absl::Status Output(size_t layer) override;
  absl::Status Mlp(size_t layer) override;
  absl::Status Logits() override;

  // Return the logits of the last pass on the device, or on the host if they went there. Valid
  // until the next pass.
  DeviceLogits device_logits() const;
  LogitsView host_logits() const;
  size_t logits_stride() const { return logits_stride_; }
  // Returns the feature of a row of logits of the last pass, in device memory: the row that the
  // output product takes, as F32 [hidden]. Valid on the stream until the next pass. PRECOND:
  // KeepFeatures was called, and row < kMaxLogitsRows.
  const float* feature(size_t row) const { return features_ + row * model_.hidden_size; }
  // Returns the memory of the logits, [kMaxLogitsRows, logits_stride()], for work between passes
  // that no longer needs the logits of the last one.
  float* logits_memory() const { return logits_; }
  const PassGraphs& graphs() const { return graphs_; }
  // Grows by one with each block that is enqueued. Any thread may call this function.
  uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }

 private:
  // Returns whether the block that was prepared can be started as a graph: the pass has only this
  // block, the block has few rows, and its attention is one call.
  bool CanBeGraph() const;
  absl::Status FetchLogits();
  // Enqueues the norm of the rows of logits into features_.
  absl::Status EnqueueFeatures();
  // Enqueues the norm of the first `rows` rows into `to`: as its rows `to_rows`, which are in
  // device memory, or in their order if that is null.
  absl::Status WriteNorm(size_t rows, float* to, size_t to_stride, const int32_t* to_rows);

  const ModelDescription& model_;
  const CudaWeights& weights_;
  Options options_;
  bool keeps_features_ = false;  // those of logits
  RowFeatures row_features_;     // those of all rows, on the pages
  size_t logits_stride_;         // floats
  CudaLayer layer_;
  RowNumbers numbers_;
  float* logits_ = nullptr;    // [kMaxLogitsRows, logits_stride_]
  float* features_ = nullptr;  // [kMaxLogitsRows, hidden], if they are kept
  const DeviceStream* stream_ = nullptr;
  const CudaKvMemory* kv_ = nullptr;
  PassGraphs graphs_;
  std::atomic<uint64_t> progress_ = 0;

  // State of the pass.
  Ends ends_;
  const ForwardPlan* plan_ = nullptr;
  size_t num_blocks_ = 0;
  std::vector<float> host_logits_;  // [num_logits, vocabulary]

  // State of the block of rows.
  RowBlock block_;
  std::vector<PlanSegment> segments_;
  std::vector<RowNumbers::Sequence> sequences_;
  PassShape shape_;
  bool is_graph_ = false;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CUDA_CUDA_BACKEND_H_
