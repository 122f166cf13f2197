// A Llama decoder on one NVIDIA GPU.
#ifndef TANDEM_COMMON_MODEL_CUDA_CUDA_LLAMA_H_
#define TANDEM_COMMON_MODEL_CUDA_CUDA_LLAMA_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/cuda/cuda_kv_memory.h"
#include "common/model/cuda/cuda_weights.h"
#include "common/model/cuda/device_sampler.h"
#include "common/model/cuda/pass_graphs.h"
#include "common/model/forward_plan.h"
#include "common/model/kv_page_pool.h"
#include "common/model/llama.h"
#include "common/model/model_config.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/device_arena.h"
#include "kernels/cuda/device_stream.h"

namespace tandem {

struct CudaLlamaOptions {
  int device = 0;
  // Of the device, for weights, scratch and KV pages: one piece, taken at start. Nothing comes on top
  // of it but what the driver takes for its context and for graphs. 0: what these take, within two fifths of the GPU's
  // memory (two workers share it).
  uint64_t memory_bytes = 0;
  // The pages of it. 0: with memory_bytes, what is left; without, what all slots can fill.
  uint64_t kv_cache_bytes = 0;
  size_t max_context = 0;  // rows of a cache at most; 0: the model's limit
  size_t max_slots = 64;   // caches that can be full at once
  bool judges = false;     // sampler() has room for drafts to judge
  // Rows that are given back become NaN, so that whoever reads them shows it.
  bool spoil_freed_rows = false;
  // Passes of few rows are started as one, where their shape comes again; else kernel by kernel.
  bool use_graphs = true;
  // Called while weights are copied, with the bytes that are done and all of them.
  std::function<void(uint64_t done, uint64_t all)> on_progress = {};
  // Called once, where passes go kernel by kernel from now on, against use_graphs.
  std::function<void(const absl::Status& why)> on_no_graphs = {};
};

// Path- and batch-invariant, as LlamaModel says. Keys and values have the type of the weights.
class CudaLlama final : public LlamaModel {
 public:
  // Rows that go through the layers together; more than kMaxBlockRows rows with logits are for
  // several passes (ForwardOnDevice), or go to the host block by block (Forward).
  static constexpr size_t kMaxBlockRows = DeviceSampler::kMaxRows;

  // Errors name file and field, the device and why it is not used, or what does not fit into memory.
  // INVALID_ARGUMENT too: sizes that are no multiples of 8, heads that the shared memory of this
  // device does not hold.
  static absl::StatusOr<std::unique_ptr<CudaLlama>> Load(const std::filesystem::path& folder,
                                                         CudaLlamaOptions options);
  ~CudaLlama() override = default;

  const ModelConfig& config() const override { return config_; }
  uint64_t weight_bytes() const override { return weight_bytes_; }
  std::string fingerprint() const override { return fingerprint_; }
  uint64_t progress() const override { return progress_.load(std::memory_order_relaxed); }
  const DeviceInfo& device() const { return device_; }
  // Makes the model's device the calling thread's, for what is enqueued beside passes.
  absl::Status Select() const { return SelectDevice(device_.index); }
  const DeviceStream& stream() const { return stream_; }

  // The pool over all pages that fit into the memory. Once. It must not outlive the model.
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
  const PassGraphs& graphs() const { return graphs_; }
  // From the next pass on.
  void UseGraphs(bool use) { options_.use_graphs = use; }

 private:
  // Device memory of a block of rows.
  struct Scratch {
    int32_t* numbers = nullptr;    // what the host tells of the rows, see BlockNumbers
    float* hidden = nullptr;       // [kMaxBlockRows, hidden] the residual stream
    float* normed = nullptr;       // [kMaxBlockRows, hidden]
    float* qkv = nullptr;          // [kMaxBlockRows, (heads + 2 * KV heads) * head_size]
    float* mixed = nullptr;        // [kMaxBlockRows, heads * head_size] what attention gives
    float* kept_hidden = nullptr;  // like hidden and mixed: the rows that want logits
    float* kept_mixed = nullptr;
    float* gate_up = nullptr;         // [kMaxBlockRows, 2 * inner]
    float* logits = nullptr;          // [kMaxBlockRows, logits_stride_]
    float* partial_values = nullptr;  // of attention: partial_rows_ of each
    float* partial_maxima = nullptr;
    float* partial_sums = nullptr;
    float* rope_table = nullptr;  // [max_context, head_size]
  };
  // Where each array of a block is among `numbers`, in entries. Sized for kMaxBlockRows rows.
  struct BlockNumbers {
    size_t token_ids = 0;
    size_t positions = 0;
    size_t sequences = 0;
    size_t cache_rows = 0;
    size_t cached_lens = 0;
    size_t path_lens = 0;
    size_t paths = 0;
    size_t tiles = 0;
    size_t page_tables = 0;
    size_t size = 0;
  };
  // Rows of a block that attend in one call: as many as their partial softmaxes have room for.
  struct AttentionChunk {
    size_t first_row = 0;
    size_t rows = 0;
    size_t first_tile = 0;  // among the block's, counted from the chunk's first row
    size_t num_tiles = 0;
    size_t max_blocks = 0;
  };

  CudaLlama(ModelConfig config, CudaLlamaOptions options)
      : config_(std::move(config)), options_(std::move(options)), graphs_(options_.on_no_graphs) {}

  absl::Status TakeMemory(const LlamaWeights& weights);
  // Calls take(&pointer, count, name) for each array of the scratch.
  template <typename Take>
  absl::Status LayOutScratch(const Take& take);
  absl::Status UploadRopeTable();

  absl::Status MakePlan(std::span<const ForwardItem> items);
  // Cuts the plan's rows into blocks; trees are whole, and in blocks of their own.
  void CutBlocks();
  // Takes rows [begin, end) through all layers; their logits go to rows [logits_row, …) of the
  // scratch's. Returns the row after the last.
  absl::StatusOr<size_t> RunBlock(size_t begin, size_t end, size_t logits_row,
                                  const int32_t* token_ids);
  // What follows TellRows: nothing of it reads memory of the host.
  absl::StatusOr<size_t> RunLayers(size_t begin, size_t end, size_t logits_row,
                                   const int32_t* token_ids);
  // Of what TellRows told, whose blocks of keys it rounds up. None: the block is too large to gain
  // from a graph, or one of several.
  std::optional<PassShape> ShapeOf(size_t begin, size_t end, const int32_t* token_ids);
  absl::Status TellRows(size_t begin, size_t end);
  void TellSegment(size_t sequence, const PlanSegment& segment, bool is_tree, size_t begin);
  void CutAttention(size_t rows, bool is_tree);
  absl::Status Attend(size_t layer);
  // Gathers the rows that want logits; returns their number.
  absl::StatusOr<size_t> KeepLogitsRows(size_t begin, size_t end);
  absl::Status Mlp(const CudaLayerWeights& layer, float* hidden, size_t rows);
  absl::Status Norm(const float* weight, const float* hidden, size_t rows);
  absl::Status Product(const CudaLinear& linear, const float* x, size_t x_stride, size_t rows,
                       float* out, size_t out_stride, bool add_to_out = false);
  size_t head_floats() const { return config_.num_heads * config_.head_size; }
  size_t kv_floats() const { return config_.num_kv_heads * config_.head_size; }
  size_t qkv_floats() const { return head_floats() + 2 * kv_floats(); }

  ModelConfig config_;
  CudaLlamaOptions options_;
  DeviceInfo device_;
  // What work on the stream may still use goes after the stream, whose end waits.
  DeviceArena arena_;
  PinnedMemory staging_;  // a block's numbers on their way
  DeviceSampler sampler_;
  std::vector<float> host_logits_;
  DeviceStream stream_;
  PassGraphs graphs_;
  DeviceEvent staged_;  // the numbers have been fetched
  CudaWeights weights_;
  std::string fingerprint_;
  uint64_t weight_bytes_ = 0;
  DType kv_dtype_ = DType::kBF16;
  size_t max_context_ = 0;
  size_t table_stride_ = 0;  // pages of a sequence at most
  size_t logits_stride_ = 0;
  size_t partial_rows_ = 0;  // (row, head, block)s that the partials have room for
  Scratch scratch_;
  BlockNumbers numbers_;
  void* kv_data_ = nullptr;
  size_t num_pages_ = 0;
  CudaKvMemory* kv_ = nullptr;          // the pool's
  std::atomic<uint64_t> progress_ = 0;  // one for each block that was enqueued

  // Of the pass.
  ForwardPlan plan_;
  std::vector<size_t> blocks_;  // block b has rows [blocks_[b], blocks_[b + 1])
  // Of a block of rows.
  int32_t* told_ = nullptr;  // in staging_
  bool block_has_paths_ = false;
  std::vector<PlanSegment> segments_;
  std::vector<AttentionChunk> chunks_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CUDA_CUDA_LLAMA_H_
