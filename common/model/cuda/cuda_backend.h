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
#include "kernels/device/device_stream.h"

namespace tandem {

// Enqueues each step on one stream. The host's work for a block is in Prepare, before the steps: it
// sends RowNumbers and sets the PassShape, which is all that the steps take from the host. So the
// steps of a block can be recorded as a graph, and the graph serves every block of that shape.
class CudaBackend final : public DecoderBackend {
 public:
  // Rows of a block, and rows of logits of a pass whose logits stay on the device.
  static constexpr size_t kMaxBlockRows = DeviceSampler::kMaxRows;
  static_assert(kMaxBlockRows <= RowSet::kMaxRows);

  struct Options {
    size_t max_context = 0;  // rows of a cache at most
    bool use_graphs = true;  // blocks of few rows are started as graphs
    // Called once if blocks go kernel by kernel from now on, against use_graphs.
    std::function<void(const absl::Status& why)> on_no_graphs = {};
  };
  // Where a pass takes its tokens from, and where its logits go.
  struct Ends {
    // [rows of all items] in device memory, fed in place of the items' ids. Null: the items' ids.
    const int32_t* token_ids = nullptr;
    bool logits_to_host = false;
  };

  // Both must outlive the backend. The weights may be filled in until the first pass.
  CudaBackend(const ModelDescription* model, const CudaWeights* weights, const Options& options);

  // Calls take(&pointer, count, name) for each array of the device memory.
  template <typename Take>
  absl::Status LayOut(const Take& take);
  // To be called once the memory is there: fills in what never changes. `stream` is used from then
  // on; the backend must outlive what is on it.
  absl::Status Start(const DeviceStream* stream);
  // Must be called before the first pass. `kv` must outlive the passes.
  void UsePages(const CudaKvMemory* kv) { kv_ = kv; }
  // From the next pass on.
  void SetEnds(const Ends& ends) { ends_ = ends; }
  void UseGraphs(bool use) { options_.use_graphs = use; }

  // INVALID_ARGUMENT too: trees that are too large, rows past max_context, too many rows of logits.
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

  // Logits of the last pass, until the next one: on the device, or on the host if they went there.
  DeviceLogits device_logits() const;
  LogitsView host_logits() const;
  size_t logits_stride() const { return logits_stride_; }
  const PassGraphs& graphs() const { return graphs_; }
  // Grows by one with each block that is enqueued. By any thread.
  uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }

 private:
  // Device memory of a block of rows.
  struct Scratch {
    float* hidden = nullptr;       // [kMaxBlockRows, hidden] the residual stream
    float* normed = nullptr;       // [kMaxBlockRows, hidden]
    float* qkv = nullptr;          // [kMaxBlockRows, (heads + 2 * KV heads) * head_size]
    float* mixed = nullptr;        // [kMaxBlockRows, heads * head_size] what attention gives
    float* kept_hidden = nullptr;  // like hidden and mixed: the rows that want logits
    float* kept_mixed = nullptr;
    float* gate_up = nullptr;         // [kMaxBlockRows, 2 * inner]
    float* logits = nullptr;          // [kMaxBlockRows, logits_stride_]
    float* partial_values = nullptr;  // [partial_rows_, head_size] attention's partial softmaxes
    float* partial_maxima = nullptr;  // [partial_rows_]
    float* partial_sums = nullptr;    // [partial_rows_]
    float* rope_table = nullptr;      // [max_context, head_size]
  };

  // Whether the block that was prepared can be started as a graph: there is one block in the pass,
  // of few rows, whose attention is one call.
  bool CanBeGraph() const;
  absl::Status FetchLogits();
  absl::Status NormHeads(const float* weight, float* heads, size_t num_heads);
  // scratch_.normed = norm of the live rows of the residual stream.
  absl::Status Norm(const float* weight);
  // The product of the live rows of `x`.
  absl::Status Product(const CudaLinear& linear, const float* x, size_t x_stride, float* out,
                       size_t out_stride, bool add_to_out = false);

  const ModelDescription& model_;
  const CudaWeights& weights_;
  Options options_;
  size_t table_stride_;   // pages of a sequence at most
  size_t logits_stride_;  // floats
  size_t partial_rows_;   // (row, head, block of keys)s that the partial softmaxes have room for
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

  // State of a walk. Embed sets it, KeepRows changes it; a graph has it built in.
  size_t live_rows_ = 0;
  float* hidden_ = nullptr;
  const float* mixed_ = nullptr;
};

template <typename Take>
absl::Status CudaBackend::LayOut(const Take& take) {
  constexpr size_t kRows = kMaxBlockRows;
  const size_t hidden = kRows * model_.hidden_size;
  const size_t mixed = kRows * model_.attention.query_floats();
  const size_t head_size = model_.attention.head_size;
  TANDEM_RETURN_IF_ERROR(numbers_.LayOut(take));
  TANDEM_RETURN_IF_ERROR(take(&scratch_.hidden, hidden, "hidden rows"));
  TANDEM_RETURN_IF_ERROR(take(&scratch_.normed, hidden, "normalized rows"));
  TANDEM_RETURN_IF_ERROR(
      take(&scratch_.qkv, kRows * model_.attention.qkv_floats(), "queries, keys and values"));
  TANDEM_RETURN_IF_ERROR(take(&scratch_.mixed, mixed, "attention's rows"));
  TANDEM_RETURN_IF_ERROR(take(&scratch_.kept_hidden, hidden, "hidden rows"));
  TANDEM_RETURN_IF_ERROR(take(&scratch_.kept_mixed, mixed, "attention's rows"));
  TANDEM_RETURN_IF_ERROR(
      take(&scratch_.gate_up, kRows * 2 * model_.mlp.inner_size, "gate and up rows"));
  TANDEM_RETURN_IF_ERROR(take(&scratch_.logits, kRows * logits_stride_, "logits"));
  TANDEM_RETURN_IF_ERROR(take(&scratch_.partial_values, partial_rows_ * head_size, "partial sums"));
  TANDEM_RETURN_IF_ERROR(take(&scratch_.partial_maxima, partial_rows_, "partial sums"));
  TANDEM_RETURN_IF_ERROR(take(&scratch_.partial_sums, partial_rows_, "partial sums"));
  return take(&scratch_.rope_table, options_.max_context * head_size, "angles");
}

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CUDA_CUDA_BACKEND_H_
