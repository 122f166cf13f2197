// The operations of a decoder's layer on a GPU, for rows of any sequences.
#ifndef TANDEM_COMMON_MODEL_CUDA_CUDA_LAYER_H_
#define TANDEM_COMMON_MODEL_CUDA_CUDA_LAYER_H_

#include <cstddef>

#include "absl/status/status.h"
#include "common/model/cuda/cuda_linear.h"
#include "common/model/cuda/cuda_weights.h"
#include "common/model/cuda/memory_taker.h"
#include "common/model/cuda/pass_shape.h"
#include "common/model/cuda/row_numbers.h"
#include "common/model/model_description.h"
#include "kernels/attention.h"
#include "kernels/device/bf16_rows.h"
#include "kernels/device/device_stream.h"

namespace tandem {

// Holds the rows that go through a layer together in device memory, and enqueues each step on one
// stream when it is called. The steps take only pointers and sizes from the host, so they can be
// recorded as a graph. All errors come from the device.
class CudaLayer {
 public:
  struct Options {
    size_t max_rows = 0;     // largest number of rows
    size_t max_context = 0;  // largest number of rows of a cache
    // Products with BF16 weights take activations in three BF16 parts instead of rounding them.
    bool exact_activations = true;
    bool keeps_rows = false;   // KeepRows may be called
    size_t partial_bytes = 0;  // for attention's partial softmaxes. A row always has room
  };

  // `model` must outlive the layer.
  CudaLayer(const ModelDescription* model, const Options& options);

  absl::Status LayOut(const MemoryTaker& take);
  // Copies the angles of all positions. Called once, after the memory was taken. `stream` is used
  // from then on, and the layer must outlive the work on the stream.
  absl::Status Start(const DeviceStream* stream);

  // Partial softmaxes that have room. Each (row, head, block of keys) takes one.
  size_t partial_rows() const { return partial_rows_; }
  // Largest number of pages of a sequence.
  size_t table_stride() const { return table_stride_; }
  // Room for the row numbers of the rows.
  RowNumbers::Sizes number_sizes() const;

  // Begins with this many rows, whose content is undefined.
  void Begin(size_t rows);
  size_t rows() const { return rows_; }
  float* hidden() const { return hidden_; }  // [rows, hidden] the residual stream
  const ProductRows& normed() const { return scratch_.normed; }  // [max_rows, hidden]

  // normed() = norm of hidden(), for a product with `linear`.
  absl::Status Norm(const float* weight, const CudaLinear& linear);
  // Queries, keys and values = product of the rows of `x`. Normalizes heads if the model has head
  // norms, turns queries and keys, and stores keys and values in `kv`.
  absl::Status Qkv(const CudaLayerWeights& weights, const ProductRows& x, const DeviceKv& kv,
                   const RowNumbers& numbers);
  // Attends, once the keys and values of all rows are stored. Nobody sees the first `hidden_rows`
  // rows of a cache.
  absl::Status Attend(const CudaLayerWeights& weights, const DeviceKv& kv,
                      const RowNumbers& numbers, const PassShape& shape, size_t hidden_rows = 0);
  // From now on, only the rows of `kept` are computed: they become the first ones. `weights` are
  // those of the last layer.
  absl::Status KeepRows(const RowSet& kept, const CudaLayerWeights& weights);
  // hidden() += result of attention, times the output matrix.
  absl::Status Output(const CudaLayerWeights& weights);
  // hidden() += MLP of its norm.
  absl::Status Mlp(const CudaLayerWeights& weights);
  // Enqueues the product of the rows of `x`.
  absl::Status Product(const CudaLinear& linear, const ProductRows& x, const ProductOutput& out);

 private:
  struct Scratch {
    float* hidden = nullptr;  // [max_rows, hidden]
    ProductRows normed;       // [max_rows, hidden]
    float* qkv = nullptr;     // [max_rows, (heads + 2 * KV heads) * head_size]
    ProductRows mixed;        // [max_rows, heads * head_size] result of attention
    // Rows of hidden and mixed that are kept, in the same shapes.
    float* kept_hidden = nullptr;
    ProductRows kept_mixed;
    float* gate_up = nullptr;         // [max_rows, 2 * inner]
    Bf16Rows inner;                   // [max_rows, inner] result of the gate
    float* partial_values = nullptr;  // [partial_rows_, head_size] attention's partial softmaxes
    float* partial_maxima = nullptr;  // [partial_rows_]
    float* partial_sums = nullptr;    // [partial_rows_]
    float* rope_table = nullptr;      // [max_context, head_size]
  };

  // Copies `count` rows, from `row` on, behind the `to` rows that are kept so far.
  absl::Status KeepRun(size_t row, size_t count, size_t to, DType output_dtype);
  absl::Status NormHeads(const float* weight, float* heads, size_t num_heads);

  const ModelDescription& model_;
  Options options_;
  size_t table_stride_;
  size_t partial_rows_;
  Scratch scratch_;
  const DeviceStream* stream_ = nullptr;

  // State of a walk. Begin sets this state, KeepRows changes it, and a graph has it built in.
  size_t rows_ = 0;
  float* hidden_ = nullptr;
  const ProductRows* mixed_ = nullptr;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CUDA_CUDA_LAYER_H_
