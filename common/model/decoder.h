// The one decoder: how a forward pass walks over the layers of a model description. Each backend
// (CPU, CUDA) implements the steps of the walk, and may fuse the operations inside a step.
#ifndef TANDEM_COMMON_MODEL_DECODER_H_
#define TANDEM_COMMON_MODEL_DECODER_H_

#include <cstddef>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/forward_plan.h"
#include "common/model/language_model.h"
#include "common/model/model_description.h"

namespace tandem {

// Consecutive rows of a pass that go through the layers together.
struct RowBlock {
  size_t begin = 0;  // rows [begin, end) of the pass
  size_t end = 0;
  size_t num_logits = 0;  // number of rows of the block that want logits
  size_t logits_row = 0;  // number of rows of logits in the blocks before this one
  size_t rows() const { return end - begin; }
};

// A device that computes the steps of the walk, one block of rows after the other. Steps leave
// their results in the backend's own memory: the residual stream, the products, the result of
// attention, and the logits. All errors come from the device, except where stated.
class DecoderBackend {
 public:
  virtual ~DecoderBackend() = default;

  // Begins a pass and cuts its rows into blocks. Returns the end of each block, in ascending order.
  // `plan` must not change during the pass. INVALID_ARGUMENT: the pass is too large for the
  // backend.
  virtual absl::StatusOr<std::vector<size_t>> BeginPass(const ForwardPlan& plan) = 0;
  // Does all of the host's work for a block. The steps take nothing else from the host.
  virtual absl::Status Prepare(const RowBlock& block) = 0;
  // Executes `steps`, the walk over the block that was prepared. Either calls `steps`, or starts
  // the recording of an earlier call with the same launches.
  virtual absl::Status Execute(absl::FunctionRef<absl::Status()> steps) = 0;

  // Residual stream = rows of the embedding.
  virtual absl::Status Embed() = 0;
  // Queries, keys and values = norm of the residual stream, times their matrices, plus biases.
  virtual absl::Status Qkv(size_t layer) = 0;
  // Normalizes the heads if the model has head norms, turns queries and keys (RoPE), stores keys
  // and values in the caches, and attends.
  virtual absl::Status Attend(size_t layer) = 0;
  // Whether the walk calls StoreFeatures before this layer. The number of layers stands for the
  // walk's place after the last one.
  virtual bool HasFeatures(size_t /*layer*/) const { return false; }
  // Writes the residual stream to the caches, as a part of the features of all rows.
  virtual absl::Status StoreFeatures(size_t /*layer*/) { return absl::OkStatus(); }
  // Keeps only the rows that want logits for the later steps. At least one row wants logits.
  virtual absl::Status KeepRows() = 0;
  // Residual stream += result of attention, times the output matrix, plus bias.
  virtual absl::Status Output(size_t layer) = 0;
  // Residual stream += MLP of its norm.
  virtual absl::Status Mlp(size_t layer) = 0;
  // Logits of the block = norm of the residual stream, times the vocabulary's matrix.
  virtual absl::Status Logits() = 0;
};

// Runs passes on a backend. Not thread-safe.
class Decoder {
 public:
  // Both arguments must outlive the decoder.
  Decoder(const ModelDescription* model, DecoderBackend* backend)
      : model_(*model), backend_(*backend) {}

  // Takes the rows of all items through the model, and counts them in the items' caches. After an
  // error, no cache has grown. INVALID_ARGUMENT names the item. RESOURCE_EXHAUSTED: no page is left
  // for an item. Other errors come from the device.
  absl::Status Run(std::span<const ForwardItem> items);

 private:
  absl::Status Walk(const RowBlock& block);
  // Keeps only the rows that want logits. Returns false if there are none, and the walk is over.
  absl::StatusOr<bool> KeepRows(const RowBlock& block);

  const ModelDescription& model_;
  DecoderBackend& backend_;
  ForwardPlan plan_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_DECODER_H_
