// What drafters that guess step by step share on the GPU of their target.
#ifndef TANDEM_COMMON_MODEL_CUDA_HEADS_CUDA_STEPS_H_
#define TANDEM_COMMON_MODEL_CUDA_HEADS_CUDA_STEPS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/cuda/cuda_backend.h"
#include "common/model/cuda/cuda_kv_memory.h"
#include "common/model/cuda/cuda_layer.h"
#include "common/model/cuda/cuda_linear.h"
#include "common/model/cuda/cuda_weights.h"
#include "common/model/cuda/heads/cuda_drafter.h"
#include "common/model/cuda/heads/likeliest_tokens.h"
#include "common/model/cuda/memory_taker.h"
#include "common/model/cuda/pass_shape.h"
#include "common/model/cuda/row_numbers.h"
#include "common/model/heads/step_device.h"
#include "common/model/model_description.h"
#include "kernels/device/device_stream.h"

namespace tandem {

// Takes rows through layers, and keeps the residual stream after the last of them as the rows'
// guesses. Guesses stay on the device, and the likeliest tokens of each go to the host, where the
// trees grow. Looking ahead overwrites the logits of the target's last pass.
class CudaSteps : public StepDevice, public CudaDrafter {
 public:
  absl::Status LayOut(const MemoryTaker& take) override;
  absl::Status Start(const DeviceStream* stream) override;
  void UsePages(CudaKvMemory* pages) override { pages_ = pages; }

  absl::Status Check() const override { return absl::OkStatus(); }
  // These functions enqueue work. LookAhead waits for it.
  absl::Status Run(const StepPass& pass) final;
  absl::StatusOr<std::vector<std::vector<Guess>>> LookAhead(std::span<const int32_t> guesses,
                                                            int32_t count) final;

 protected:
  // `model` describes the layers. `backend` computes the target's passes. Both must outlive this
  // object.
  CudaSteps(const ModelDescription* model, const CudaBackend* backend, const Options& options);

  // Takes the rows of a pass through the layers. `layer()` has begun with them.
  virtual absl::Status Compute(const StepPass& pass) = 0;

  const Options& options() const { return options_; }
  CudaLayer& layer() { return layer_; }
  const RowNumbers& numbers() const { return numbers_; }
  const DeviceStream& stream() const { return *stream_; }
  CudaKvMemory& pages() { return *pages_; }
  const float* guesses() const { return guesses_; }
  // Sets the product that turns guesses into logits, and their norm before it. Null: there is none.
  void SetOutput(const CudaLinear& output, const float* norm) {
    output_ = output;
    output_norm_ = norm;
  }
  // A table of floats [entries, size] in device memory, whose entries lie `stride` floats apart.
  struct Table {
    const float* data;
    size_t size;
    size_t stride;
  };
  // Copies rows of a table into rows that a product takes.
  //   ids  [rows]  i32 in device memory; null: 0, 1, …
  absl::Status Gather(const Table& table, const int32_t* ids, size_t rows, const ProductRows& to);
  // Looks the embeddings of the rows' tokens up.
  absl::Status Embed(const CudaLinear& embedding, const ProductRows& to);
  // Computes queries, keys and values of the rows of `x`. `index` is the layer's place on the
  // pages.
  absl::Status Qkv(const CudaLayerWeights& weights, const ProductRows& x, size_t index);
  // Attends with the queries, keys and values of a layer whose place on the pages is `index`.
  // Nobody sees the first `hidden_rows` rows of a cache.
  absl::Status Attend(const CudaLayerWeights& weights, size_t index, size_t hidden_rows);

 private:
  static constexpr size_t kMaxLooks = LikeliestTokens::kMaxRows;

  absl::Status SendNumbers(const StepPass& pass);
  absl::Status KeepGuesses(const StepPass& pass);
  absl::Status LookAhead(std::span<const int32_t> guesses, int32_t count,
                         std::span<std::vector<Guess>> found);
  absl::Status EnqueueLooks(std::span<const int32_t> guesses, int32_t count);

  const ModelDescription& model_;
  const CudaBackend& backend_;
  Options options_;
  CudaLayer layer_;
  RowNumbers numbers_;
  CudaLinear output_;
  const float* output_norm_ = nullptr;
  const DeviceStream* stream_ = nullptr;
  CudaKvMemory* pages_ = nullptr;

  float* guesses_ = nullptr;  // [kMaxGuesses, hidden]
  int32_t* looks_ = nullptr;  // [kMaxLooks] guesses to look ahead of
  PinnedMemory sent_looks_;   // [kMaxLooks] int32_t
  LikeliestTokens likeliest_;

  // State of a pass.
  std::vector<int32_t> token_ids_;
  std::vector<int32_t> positions_;
  std::vector<int32_t> sources_;
  std::vector<RowNumbers::Sequence> sequences_;
  PassShape shape_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CUDA_HEADS_CUDA_STEPS_H_
