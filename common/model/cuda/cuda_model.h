// A language model on one NVIDIA GPU.
#ifndef TANDEM_COMMON_MODEL_CUDA_CUDA_MODEL_H_
#define TANDEM_COMMON_MODEL_CUDA_CUDA_MODEL_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/cuda/cuda_backend.h"
#include "common/model/cuda/cuda_kv_memory.h"
#include "common/model/cuda/cuda_weights.h"
#include "common/model/cuda/device_sampler.h"
#include "common/model/cuda/heads/drafter_on_device.h"
#include "common/model/cuda/memory_taker.h"
#include "common/model/cuda/pass_graphs.h"
#include "common/model/decoder.h"
#include "common/model/drafter_room.h"
#include "common/model/kv/kv_page_pool.h"
#include "common/model/language_model.h"
#include "common/model/model_description.h"
#include "kernels/device/device.h"
#include "kernels/device/device_arena.h"
#include "kernels/device/device_stream.h"

namespace tandem {

struct CudaModelOptions {
  int device = 0;
  std::filesystem::path heads = {};  // folder of the heads that draft for the model; empty: none
  // Other heads may be adopted later, if pages have room for what they keep. Their weights and
  // scratch come in addition to memory_bytes.
  bool swaps_heads = false;
  DrafterRoom heads_room = {};
  // Size of the device memory for weights, scratch and KV pages. It is one piece that is taken at
  // start. In addition, the driver takes memory for its context and for graphs. 0: the size that
  // weights, scratch and pages need, up to two fifths of the GPU's memory, which two workers share.
  uint64_t memory_bytes = 0;
  // Size of the part of this memory for pages. 0: the rest of memory_bytes if that is set, else the
  // size that all slots can fill.
  uint64_t kv_cache_bytes = 0;
  size_t max_context = 0;  // largest number of rows of a cache; 0: the model's limit
  size_t max_slots = 64;   // largest number of caches that can be full at once
  // Largest number of rows that go through the layers together, at most
  // CudaBackend::kMaxBlockRows. Longer passes are cut.
  size_t max_block_rows = CudaBackend::kMaxBlockRows;
  bool judges = false;  // sampler() has room for drafts to judge
  // Rows that are given back become NaN, so that a read of such a row shows in the results.
  bool spoil_freed_rows = false;
  // Products with BF16 weights take activations exactly, in three BF16 parts. Otherwise they are
  // rounded to BF16, which other engines do too, and products of many rows take a third of the
  // time.
  bool exact_activations = true;
  // A pass of few rows is started as one graph when its shape comes again. Other passes go kernel
  // by kernel.
  bool use_graphs = true;
  // The GPU's kernels are checked before anything is loaded (check/device_check.h).
  bool checks_kernels = false;
  // Called when they were checked and are right.
  std::function<void(std::chrono::nanoseconds took)> on_kernels_checked = {};
  // Called while weights are copied, with the bytes copied so far and the bytes of all weights.
  std::function<void(uint64_t done, uint64_t all)> on_progress = {};
  // Called at most once: when graphs fail, and passes go kernel by kernel from then on although
  // use_graphs is set.
  std::function<void(const absl::Status& why)> on_no_graphs = {};
};

// Path- and batch-invariant, like every LanguageModel. Keys and values have the type of the
// weights.
class CudaModel final : public LanguageModel {
 public:
  // Largest number of rows of logits that a pass of ForwardOnDevice may have. Forward may have
  // more, because it sends logits to the host block by block.
  static constexpr size_t kMaxLogitsRows = CudaBackend::kMaxLogitsRows;

  // Loads a model. Errors name the file and the field, or the device and the reason why it is not
  // used, or the parts that do not fit into memory. INVALID_ARGUMENT: a size is not a multiple of
  // 8, tensors of one product have different types (Q, K and V; gate and up), or the shared memory
  // of this device does not hold a head. FAILED_PRECONDITION: there is no such device, or its
  // kernels compute wrong results.
  static absl::StatusOr<std::unique_ptr<CudaModel>> Load(const std::filesystem::path& folder,
                                                         CudaModelOptions options);
  ~CudaModel() override = default;

  const ModelDescription& description() const override { return description_; }
  uint64_t weight_bytes() const override { return weight_bytes_; }
  std::string fingerprint() const override { return fingerprint_; }
  uint64_t progress() const override;
  SelfDrafter* self_drafter() override { return heads_.get(); }
  absl::StatusOr<std::unique_ptr<SelfDrafter>> LoadHeads(
      const std::filesystem::path& folder) override;
  // Passes wait while the weights are copied to the device.
  absl::Status AdoptHeads(std::unique_ptr<SelfDrafter> heads) override;
  RowFeatures stored_features() const override { return backend_->stored_features(); }
  const DeviceInfo& device() const { return device_; }
  // Returns whether products round activations to BF16: the weights are BF16, and exact activations
  // were not asked for.
  bool rounds_activations() const {
    return !options_.exact_activations && kv_dtype_ == DType::kBF16;
  }
  // Makes the model's device the current device of the calling thread. Threads that enqueue work
  // besides passes need this.
  absl::Status Select() const { return SelectDevice(device_.index); }
  const DeviceStream& stream() const { return stream_; }

  // Returns the pool of all pages that fit into the memory. Called once. The pool must not outlive
  // the model.
  absl::StatusOr<std::unique_ptr<KvPagePool>> TakePages();

  // Runs a pass, and brings its logits to the host. Used by tools, by tests, and by callers that
  // can sample only on the host.
  absl::StatusOr<LogitsView> Forward(std::span<const ForwardItem> items) override;

  // Enqueues the same pass on stream() without waiting. The logits stay on the device. The memory
  // that `items` name may be freed when this function returns.
  //   token_ids  [rows of all items]  in device memory, each in [0, V). They replace the ids of the
  //              items unless the pointer is null
  // PRECOND: the items want at most kMaxLogitsRows rows of logits, and `items` outlives the pass.
  absl::StatusOr<DeviceLogits> ForwardOnDevice(std::span<const ForwardItem> items,
                                               const int32_t* token_ids = nullptr);

  // Returns the sampler, which works on stream() in a part of the model's memory.
  DeviceSampler& sampler() { return sampler_; }
  const PassGraphs& graphs() const { return backend_->graphs(); }
  // Takes effect with the next pass.
  void UseGraphs(bool use) { backend_->UseGraphs(use); }

 private:
  CudaModel(std::filesystem::path folder, ModelDescription description, CudaModelOptions options);

  // Reads the heads of a folder.
  absl::StatusOr<std::unique_ptr<DrafterOnDevice>> ReadHeads(const std::filesystem::path& folder,
                                                             const ModelWeights& weights) const;
  absl::Status CheckKernels(const ModelWeights& weights) const;
  // Lays out and takes all device memory.
  absl::Status TakeMemory(const ModelWeights& weights);
  absl::Status LayOut(const MemoryTaker& take);
  // Copies all weights to the device.
  absl::Status Upload(const ModelWeights& weights);
  // Returns the bytes for pages beside `fixed_bytes` of weights and scratch. They hold at least one
  // page.
  absl::StatusOr<uint64_t> PageBudget(uint64_t fixed_bytes, uint64_t page_bytes) const;
  absl::Status Run(std::span<const ForwardItem> items, const CudaBackend::Ends& ends);

  std::filesystem::path folder_;
  ModelDescription description_;
  CudaModelOptions options_;
  size_t max_context_ = 0;
  DeviceInfo device_;
  CudaWeights weights_;
  // Work on the stream may still use these members. They are destroyed after the stream, because
  // the destructor of the stream waits for the work.
  DeviceArena arena_;
  DeviceSampler sampler_;
  std::unique_ptr<CudaBackend> backend_;
  // Guards the pointer against other threads that ask for the progress.
  mutable std::mutex heads_mutex_;
  std::unique_ptr<DrafterOnDevice> heads_;  // null: the model has none
  std::atomic<uint64_t> adoption_progress_ = 0;
  uint64_t former_progress_ = 0;  // that of heads that were replaced
  DeviceStream stream_;
  Decoder decoder_;
  std::string fingerprint_;
  uint64_t weight_bytes_ = 0;
  DType kv_dtype_ = DType::kBF16;
  CudaKvMemory::Pages pages_;
  CudaKvMemory* page_memory_ = nullptr;  // the pool's; null: the pages were not taken yet
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CUDA_CUDA_MODEL_H_
