// The steps of the decoder on one NVIDIA GPU.
#ifndef TANDEM_COMMON_MODEL_CUDA_CUDA_BACKEND_H_
#define TANDEM_COMMON_MODEL_CUDA_CUDA_BACKEND_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/cuda/cuda_kv_memory.h"
#include "common/model/cuda/cuda_linear.h"
#include "common/model/cuda/cuda_weights.h"
#include "common/model/cuda/device_sampler.h"
#include "common/model/cuda/pass_graphs.h"
#include "common/model/cuda/pass_shape.h"
#include "common/model/cuda/row_numbers.h"
#include "common/model/decoder.h"
#include "common/model/forward_plan.h"
#include "common/model/language_model.h"
#include "common/model/model_description.h"
#include "common/status.h"
#include "kernels/device/bf16_rows.h"
#include "kernels/device/device_stream.h"
#include "kernels/dtype.h"

namespace tandem {

// Enqueues each step on one stream. Prepare does the host's work for a block before the steps: it
// sends RowNumbers and sets the PassShape. The steps take nothing else from the host. The steps of
// a block can therefore be recorded as a graph, and the graph serves every block of that shape.
class CudaBackend final : public DecoderBackend {
 public:
  // Largest number of rows in a block. Larger products of a prompt are hardly faster.
  static constexpr size_t kMaxBlockRows = 512;
  static_assert(kMaxBlockRows <= RowSet::kMaxRows);
  // Largest number of rows of logits in a block, and in a pass whose logits stay on the device.
  static constexpr size_t kMaxLogitsRows = DeviceSampler::kMaxRows;

  struct Options {
    size_t max_context = 0;  // largest number of rows of a cache
    bool use_graphs = true;  // blocks of few rows are started as graphs
    // Products with BF16 weights take activations in three BF16 parts instead of rounding them to
    // BF16.
    bool exact_activations = true;
    // feature() has the first kMaxLogitsRows rows of logits of a pass.
    bool keeps_features = false;
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

  // Calls take(&pointer, count, name) for each array of the device memory.
  template <typename Take>
  absl::Status LayOut(const Take& take);
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
  // Options::keeps_features, and row < kMaxLogitsRows.
  const float* feature(size_t row) const { return scratch_.features + row * model_.hidden_size; }
  // Returns the memory of the logits, [kMaxLogitsRows, logits_stride()], for work between passes
  // that no longer needs the logits of the last one.
  float* logits_memory() const { return scratch_.logits; }
  const PassGraphs& graphs() const { return graphs_; }
  // Grows by one with each block that is enqueued. Any thread may call this function.
  uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }

 private:
  // Device memory of a block of rows.
  struct Scratch {
    float* hidden = nullptr;       // [kMaxBlockRows, hidden] the residual stream
    ProductRows normed;            // [kMaxBlockRows, hidden]
    float* qkv = nullptr;          // [kMaxBlockRows, (heads + 2 * KV heads) * head_size]
    ProductRows mixed;             // [kMaxBlockRows, heads * head_size] result of attention
    float* kept_hidden = nullptr;  // rows of hidden and mixed that want logits, in the same shapes
    ProductRows kept_mixed;
    float* gate_up = nullptr;         // [kMaxBlockRows, 2 * inner]
    Bf16Rows inner;                   // [kMaxBlockRows, inner] result of the gate
    float* logits = nullptr;          // [kMaxLogitsRows, logits_stride_]
    float* features = nullptr;        // [kMaxLogitsRows, hidden], if they are kept
    float* partial_values = nullptr;  // [partial_rows_, head_size] attention's partial softmaxes
    float* partial_maxima = nullptr;  // [partial_rows_]
    float* partial_sums = nullptr;    // [partial_rows_]
    float* rope_table = nullptr;      // [max_context, head_size]
  };

  // Returns whether the block that was prepared can be started as a graph: the pass has only this
  // block, the block has few rows, and its attention is one call.
  bool CanBeGraph() const;
  absl::Status FetchLogits();
  // Copies `count` rows that want logits, from `row` on, behind the `to` rows that are kept so far.
  absl::Status KeepRun(size_t row, size_t count, size_t to);
  absl::Status NormHeads(const float* weight, float* heads, size_t num_heads);
  absl::Status KeepFeatures();
  // scratch_.normed = norm of the live rows of the residual stream, for a product with `linear`.
  absl::Status Norm(const float* weight, const CudaLinear& linear);
  // Enqueues the product of the live rows of `x`.
  absl::Status Product(const CudaLinear& linear, const ProductRows& x, float* out,
                       size_t out_stride, bool add_to_out = false);

  const ModelDescription& model_;
  const CudaWeights& weights_;
  Options options_;
  size_t table_stride_;   // largest number of pages of a sequence
  size_t logits_stride_;  // floats
  size_t partial_rows_;   // room for partial softmaxes; each (row, head, block of keys) takes one
  RowNumbers numbers_;
  Scratch scratch_;
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
  PassShape shape_;
  bool is_graph_ = false;

  // State of a walk. Embed sets this state, KeepRows changes it, and a graph has it built in.
  size_t live_rows_ = 0;
  float* hidden_ = nullptr;
  const ProductRows* mixed_ = nullptr;
};

template <typename Take>
absl::Status CudaBackend::LayOut(const Take& take) {
  constexpr size_t kRows = kMaxBlockRows;
  const int num_parts = NumBf16Parts(options_.exact_activations);
  const size_t hidden = kRows * model_.hidden_size;
  const size_t mixed = model_.attention.query_floats();
  const size_t head_size = model_.attention.head_size;
  TANDEM_RETURN_IF_ERROR(numbers_.LayOut(take));
  TANDEM_RETURN_IF_ERROR(take(&scratch_.hidden, hidden, "hidden rows"));
  TANDEM_RETURN_IF_ERROR(
      LayOutRows(&scratch_.normed, kRows, model_.hidden_size, num_parts, "normalized rows", take));
  TANDEM_RETURN_IF_ERROR(
      take(&scratch_.qkv, kRows * model_.attention.qkv_floats(), "queries, keys and values"));
  TANDEM_RETURN_IF_ERROR(
      LayOutRows(&scratch_.mixed, kRows, mixed, num_parts, "attention's rows", take));
  TANDEM_RETURN_IF_ERROR(take(&scratch_.kept_hidden, hidden, "hidden rows"));
  TANDEM_RETURN_IF_ERROR(
      LayOutRows(&scratch_.kept_mixed, kRows, mixed, num_parts, "attention's rows", take));
  TANDEM_RETURN_IF_ERROR(
      take(&scratch_.gate_up, kRows * 2 * model_.mlp.inner_size, "gate and up rows"));
  TANDEM_RETURN_IF_ERROR(LayOutParts(&scratch_.inner, kRows, model_.mlp.inner_size, num_parts,
                                     "the MLP's inner rows", take));
  TANDEM_RETURN_IF_ERROR(take(&scratch_.logits, kMaxLogitsRows * logits_stride_, "logits"));
  if (options_.keeps_features) {
    TANDEM_RETURN_IF_ERROR(
        take(&scratch_.features, kMaxLogitsRows * model_.hidden_size, "features"));
  }
  TANDEM_RETURN_IF_ERROR(take(&scratch_.partial_values, partial_rows_ * head_size, "partial sums"));
  TANDEM_RETURN_IF_ERROR(take(&scratch_.partial_maxima, partial_rows_, "partial sums"));
  TANDEM_RETURN_IF_ERROR(take(&scratch_.partial_sums, partial_rows_, "partial sums"));
  return take(&scratch_.rope_table, options_.max_context * head_size, "angles");
}

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CUDA_CUDA_BACKEND_H_
