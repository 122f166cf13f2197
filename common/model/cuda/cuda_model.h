// A language model on one NVIDIA GPU.
#ifndef TANDEM_COMMON_MODEL_CUDA_CUDA_MODEL_H_
#define TANDEM_COMMON_MODEL_CUDA_CUDA_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/cuda/cuda_backend.h"
#include "common/model/cuda/cuda_kv_memory.h"
#include "common/model/cuda/cuda_weights.h"
#include "common/model/cuda/device_sampler.h"
#include "common/model/cuda/pass_graphs.h"
#include "common/model/decoder.h"
#include "common/model/kv/kv_page_pool.h"
#include "common/model/language_model.h"
#include "common/model/model_description.h"
#include "kernels/device/device.h"
#include "kernels/device/device_arena.h"
#include "kernels/device/device_stream.h"

namespace tandem {

struct CudaModelOptions {
  int device = 0;
  // Device memory for weights, scratch and KV pages: one piece, taken at start. Nothing comes on
  // top of it but what the driver takes for its context and for graphs. 0: what these take, within
  // two fifths of the GPU's memory (two workers share it).
  uint64_t memory_bytes = 0;
  // The part of it for pages. 0: with memory_bytes, what is left; without, what all slots can fill.
  uint64_t kv_cache_bytes = 0;
  size_t max_context = 0;  // rows of a cache at most; 0: the model's limit
  size_t max_slots = 64;   // caches that can be full at once
  bool judges = false;     // sampler() has room for drafts to judge
  // Rows that are given back become NaN, so that whoever reads them shows it.
  bool spoil_freed_rows = false;
  // Passes of few rows are started as one graph when their shape comes again; else kernel by
  // kernel.
  bool use_graphs = true;
  // Called while weights are copied, with the bytes that are done and all of them.
  std::function<void(uint64_t done, uint64_t all)> on_progress = {};
  // Called once if passes go kernel by kernel from now on, against use_graphs.
  std::function<void(const absl::Status& why)> on_no_graphs = {};
};

// Path- and batch-invariant, as LanguageModel says. Keys and values have the type of the weights.
class CudaModel final : public LanguageModel {
 public:
  // More rows with logits than this are for several passes (ForwardOnDevice), or go to the host
  // block by block (Forward).
  static constexpr size_t kMaxBlockRows = CudaBackend::kMaxBlockRows;

  // Errors name file and field, the device and why it is not used, or what does not fit into
  // memory. INVALID_ARGUMENT too: sizes that are no multiples of 8, heads that the shared memory of
  // this device does not hold.
  static absl::StatusOr<std::unique_ptr<CudaModel>> Load(const std::filesystem::path& folder,
                                                         CudaModelOptions options);
  ~CudaModel() override = default;

  const ModelDescription& description() const override { return description_; }
  uint64_t weight_bytes() const override { return weight_bytes_; }
  std::string fingerprint() const override { return fingerprint_; }
  uint64_t progress() const override { return backend_->progress(); }
  const DeviceInfo& device() const { return device_; }
  // Makes the model's device the calling thread's, for what is enqueued beside passes.
  absl::Status Select() const { return SelectDevice(device_.index); }
  const DeviceStream& stream() const { return stream_; }

  // The pool over all pages that fit into the memory. To be called once. The pool must not outlive
  // the model.
  absl::StatusOr<std::unique_ptr<KvPagePool>> TakePages();

  // Logits come to the host: for tools and tests, and where nothing else can sample.
  absl::StatusOr<LogitsView> Forward(std::span<const ForwardItem> items) override;

  // The same, enqueued on stream(): nothing waits, and logits stay where they are. PRECOND: items
  // want kMaxBlockRows rows of logits at most, and outlive the pass. Whatever `items` name may go
  // when this returns.
  //   token_ids  [rows of all items]  in device memory, each in [0, V): fed in place of those that
  //              the items name. Null: theirs
  absl::StatusOr<DeviceLogits> ForwardOnDevice(std::span<const ForwardItem> items,
                                               const int32_t* token_ids = nullptr);

  // Works on stream(), in memory that is part of the model's.
  DeviceSampler& sampler() { return sampler_; }
  const PassGraphs& graphs() const { return backend_->graphs(); }
  // From the next pass on.
  void UseGraphs(bool use) { backend_->UseGraphs(use); }

 private:
  CudaModel(ModelDescription description, CudaModelOptions options);

  // Lays out and takes all device memory.
  absl::Status TakeMemory(const ModelWeights& weights);
  // Bytes of pages beside `fixed_bytes` of weights and scratch: at least one page.
  absl::StatusOr<uint64_t> PageBudget(uint64_t fixed_bytes, uint64_t page_bytes) const;
  absl::Status Run(std::span<const ForwardItem> items, const CudaBackend::Ends& ends);

  ModelDescription description_;
  CudaModelOptions options_;
  size_t max_context_ = 0;
  DeviceInfo device_;
  CudaWeights weights_;
  // What work on the stream may still use is destroyed after the stream, whose end waits.
  DeviceArena arena_;
  DeviceSampler sampler_;
  std::unique_ptr<CudaBackend> backend_;
  DeviceStream stream_;
  Decoder decoder_;
  std::string fingerprint_;
  uint64_t weight_bytes_ = 0;
  DType kv_dtype_ = DType::kBF16;
  void* kv_data_ = nullptr;
  size_t num_pages_ = 0;
  bool has_given_pages_ = false;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CUDA_CUDA_MODEL_H_
