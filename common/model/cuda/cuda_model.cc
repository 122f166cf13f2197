#include "common/model/cuda/cuda_model.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/checkpoint/checkpoint.h"
#include "common/model/cuda/check/device_check.h"
#include "common/model/cuda/cuda_linear.h"
#include "common/model/model_fingerprint.h"
#include "common/model/model_weights.h"
#include "common/status.h"
#include "kernels/attention.h"

namespace tandem {
namespace {

// Refuses a head size whose attention needs more shared memory than the device has.
absl::Status CheckHeadSize(const std::filesystem::path& folder, const ModelDescription& model,
                           DType kv_dtype, const DeviceInfo& device) {
  const size_t head_size = model.attention.head_size;
  const size_t bytes = AttentionSharedBytes(head_size, kv_dtype);
  if (bytes <= device.max_shared_bytes) return absl::OkStatus();
  return InvalidArgument(absl::StrCat(
      (folder / "config.json").string(), ": head_dim is ", head_size, ": attention takes ", bytes,
      " bytes of shared memory per block, and ", device.name, " has ", device.max_shared_bytes));
}

size_t MaxContext(const ModelDescription& model, const CudaModelOptions& options) {
  const size_t limit = model.max_position_embeddings;
  return options.max_context == 0 ? limit : std::min(options.max_context, limit);
}

std::string Mebibytes(uint64_t bytes) { return absl::StrCat((bytes + (1 << 19)) >> 20, " MiB"); }

}  // namespace

CudaModel::CudaModel(std::filesystem::path folder, ModelDescription description,
                     CudaModelOptions options)
    : folder_(std::move(folder)),
      description_(std::move(description)),
      options_(std::move(options)),
      max_context_(MaxContext(description_, options_)),
      backend_(std::make_unique<CudaBackend>(
          &description_, &weights_,
          CudaBackend::Options{.max_context = max_context_,
                               .max_block_rows = options_.max_block_rows,
                               .use_graphs = options_.use_graphs,
                               .exact_activations = options_.exact_activations,
                               .on_no_graphs = options_.on_no_graphs})),
      decoder_(&description_, backend_.get()) {}

absl::StatusOr<std::unique_ptr<CudaModel>> CudaModel::Load(const std::filesystem::path& folder,
                                                           CudaModelOptions options) {
  TANDEM_ASSIGN_OR_RETURN(ModelDescription description, ModelDescription::Load(folder));
  TANDEM_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(folder));
  TANDEM_ASSIGN_OR_RETURN(const ModelWeights weights, ModelWeights::Load(*checkpoint, description));
  TANDEM_RETURN_IF_ERROR(CheckForGpu(folder, description, weights.layers));
  checkpoint->WillNeed();
  std::unique_ptr<CudaModel> model(
      new CudaModel(folder, std::move(description), std::move(options)));
  model->ReserveFor(model->options_.heads_room);
  if (!model->options_.heads.empty()) {
    TANDEM_ASSIGN_OR_RETURN(model->heads_, model->ReadHeads(model->options_.heads, weights));
    model->backend_->Store(model->heads_->row_features());
  }
  if (model->heads_ != nullptr || model->options_.swaps_heads) model->backend_->KeepFeatures();
  TANDEM_ASSIGN_OR_RETURN(model->device_, UseDevice(model->options_.device));
  TANDEM_RETURN_IF_ERROR(
      CheckHeadSize(folder, model->description_, weights.embedding.dtype, model->device_));
  TANDEM_ASSIGN_OR_RETURN(model->stream_, DeviceStream::Create());
  if (model->options_.checks_kernels) TANDEM_RETURN_IF_ERROR(model->CheckKernels(weights));
  TANDEM_RETURN_IF_ERROR(model->TakeMemory(weights));
  TANDEM_RETURN_IF_ERROR(model->Upload(weights));
  model->fingerprint_ = FingerprintModel(weights, model->description_);
  TANDEM_RETURN_IF_ERROR(checkpoint->CheckWhole());
  return model;
}

absl::Status CudaModel::CheckKernels(const ModelWeights& weights) const {
  const AttentionDescription& attention = description_.attention;
  const KernelSettings settings = {
      .head_size = attention.head_size,
      .heads_per_kv_head = attention.num_heads / attention.num_kv_heads,
      .weights = weights.layers.front().attention_output.dtype,
      .pages = weights.embedding.dtype,
      .num_parts = NumBf16Parts(options_.exact_activations)};
  const auto begin = std::chrono::steady_clock::now();
  TANDEM_RETURN_IF_ERROR(CheckDevice(device_, settings, stream_));
  if (options_.on_kernels_checked) {
    options_.on_kernels_checked(std::chrono::steady_clock::now() - begin);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<DrafterOnDevice>> CudaModel::ReadHeads(
    const std::filesystem::path& folder, const ModelWeights& weights) const {
  TANDEM_ASSIGN_OR_RETURN(LoadedDrafter loaded,
                          LoadCudaDrafter(folder, description_, weights, backend_.get(),
                                          {.max_places = options_.max_slots,
                                           .max_context = max_context_,
                                           .exact_activations = options_.exact_activations}));
  return std::make_unique<DrafterOnDevice>(std::move(loaded));
}

absl::StatusOr<std::unique_ptr<SelfDrafter>> CudaModel::LoadHeads(
    const std::filesystem::path& folder) {
  if (!options_.swaps_heads) return LanguageModel::LoadHeads(folder);
  // The weights of the target are on the device. Their files say what they are.
  TANDEM_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(folder_));
  TANDEM_ASSIGN_OR_RETURN(const ModelWeights weights,
                          ModelWeights::Load(*checkpoint, description_));
  return ReadHeads(folder, weights);
}

absl::Status CudaModel::AdoptHeads(std::unique_ptr<SelfDrafter> heads) {
  TANDEM_RETURN_IF_ERROR(Select());
  std::unique_ptr<DrafterOnDevice> adopted(static_cast<DrafterOnDevice*>(heads.release()));
  // The memory of the former heads is needed until the work with it has ended.
  TANDEM_RETURN_IF_ERROR(stream_.Wait());
  if (adopted != nullptr) {
    TANDEM_RETURN_IF_ERROR(
        adopted->Bring(weights_, &stream_, page_memory_, [this] { ++adoption_progress_; }));
    RowFeatures features = adopted->row_features();
    if (!features.parts.empty() && features != stored_features()) {
      backend_->Store(std::move(features));
    }
  }
  const std::lock_guard<std::mutex> lock(heads_mutex_);
  if (heads_ != nullptr) {
    former_progress_ += heads_->progress();
    weight_bytes_ -= heads_->weight_bytes();
  }
  heads_ = std::move(adopted);
  if (heads_ != nullptr) weight_bytes_ += heads_->weight_bytes();
  return absl::OkStatus();
}

uint64_t CudaModel::progress() const {
  const std::lock_guard<std::mutex> lock(heads_mutex_);
  return backend_->progress() + former_progress_ + adoption_progress_ +
         (heads_ != nullptr ? heads_->progress() : 0);
}

absl::Status CudaModel::Upload(const ModelWeights& weights) {
  uint64_t before = 0;
  const auto report = [&](uint64_t done) {
    if (options_.on_progress) options_.on_progress(before + done, weight_bytes_);
  };
  TANDEM_ASSIGN_OR_RETURN(weights_, CudaWeights::Upload(weights, arena_, stream_, report));
  if (heads_ == nullptr) return absl::OkStatus();
  before = weight_bytes_ - heads_->weight_bytes();
  return heads_->device().Upload(weights_, arena_, report);
}

absl::Status CudaModel::LayOut(const MemoryTaker& take) {
  TANDEM_RETURN_IF_ERROR(backend_->LayOut(take));
  TANDEM_RETURN_IF_ERROR(sampler_.LayOut(take));
  return heads_ == nullptr ? absl::OkStatus() : heads_->device().LayOut(take);
}

absl::Status CudaModel::TakeMemory(const ModelWeights& weights) {
  kv_dtype_ = weights.embedding.dtype;
  weight_bytes_ = CudaWeights::Bytes(weights);
  if (heads_ != nullptr) weight_bytes_ += heads_->weight_bytes();
  sampler_ = DeviceSampler({.vocabulary_size = description_.vocabulary_size,
                            .logits_stride = backend_->logits_stride(),
                            .max_contexts = std::min(options_.max_slots, DeviceSampler::kMaxRows),
                            .max_context = max_context_,
                            .judges = options_.judges});
  uint64_t fixed_bytes = weight_bytes_;
  const auto add = [&](void**, size_t bytes, const char*) {
    fixed_bytes += DeviceArena::Rounded(bytes);
    return absl::OkStatus();
  };
  TANDEM_RETURN_IF_ERROR(LayOut(MemoryTaker(add)));
  const KvShape shape = kv_shape();
  const uint64_t page_bytes = CudaKvMemory::PageBytes(shape, kv_dtype_);
  TANDEM_ASSIGN_OR_RETURN(const uint64_t kv_bytes, PageBudget(fixed_bytes, page_bytes));
  pages_.count = kv_bytes / page_bytes;
  const uint64_t layers_bytes = pages_.count * CudaKvMemory::LayersBytes(shape, kv_dtype_);
  const uint64_t feature_bytes = pages_.count * CudaKvMemory::FeatureBytes(shape);
  TANDEM_ASSIGN_OR_RETURN(arena_,
                          DeviceArena::Create(fixed_bytes + DeviceArena::Rounded(layers_bytes) +
                                              DeviceArena::Rounded(feature_bytes)));
  const auto take = [&](void** piece, size_t bytes, const char* what) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(*piece, arena_.Take<char>(bytes, what));
    return absl::OkStatus();
  };
  TANDEM_RETURN_IF_ERROR(LayOut(MemoryTaker(take)));
  TANDEM_ASSIGN_OR_RETURN(pages_.layers, arena_.Take<char>(layers_bytes, "the KV cache"));
  if (feature_bytes > 0) {
    TANDEM_ASSIGN_OR_RETURN(pages_.features,
                            arena_.Take<float>(feature_bytes / sizeof(float), "the KV cache"));
  }
  TANDEM_RETURN_IF_ERROR(backend_->Start(&stream_));
  if (heads_ != nullptr) TANDEM_RETURN_IF_ERROR(heads_->device().Start(&stream_));
  return sampler_.Start(&stream_);
}

absl::StatusOr<uint64_t> CudaModel::PageBudget(uint64_t fixed_bytes, uint64_t page_bytes) const {
  const uint64_t budget =
      options_.memory_bytes != 0 ? options_.memory_bytes : device_.memory_bytes / 5 * 2;
  if (budget < fixed_bytes + page_bytes) {
    return ResourceExhausted(absl::StrCat(
        "GPU memory: ", Mebibytes(budget), " (--gpu-memory-bytes) do not hold weights (",
        Mebibytes(weight_bytes_), "), scratch (", Mebibytes(fixed_bytes - weight_bytes_),
        ") and one page of the KV cache (", Mebibytes(page_bytes), ")"));
  }
  const uint64_t left = budget - fixed_bytes;
  if (options_.kv_cache_bytes != 0) {
    if (options_.kv_cache_bytes < page_bytes) {
      return HoldsNoPage(options_.kv_cache_bytes, page_bytes);
    }
    if (options_.kv_cache_bytes > left) {
      return ResourceExhausted(absl::StrCat(
          "GPU memory: ", Mebibytes(budget), " (--gpu-memory-bytes) hold weights and scratch (",
          Mebibytes(fixed_bytes), "), but not ", Mebibytes(options_.kv_cache_bytes),
          " of KV cache (--kv-cache-bytes) too"));
    }
    return options_.kv_cache_bytes;
  }
  if (options_.memory_bytes != 0) return left;
  const size_t pages_per_slot = (max_context_ + kPageRows - 1) / kPageRows;
  return std::min(left, options_.max_slots * pages_per_slot * page_bytes);
}

absl::StatusOr<std::unique_ptr<KvPagePool>> CudaModel::TakePages() {
  if (page_memory_ != nullptr) return Internal("the model's pages are taken already");
  const KvShape shape = kv_shape();
  auto memory =
      std::make_unique<CudaKvMemory>(shape, kv_dtype_, pages_, &stream_, options_.spoil_freed_rows);
  backend_->UsePages(memory.get());
  if (heads_ != nullptr) heads_->device().UsePages(memory.get());
  page_memory_ = memory.get();
  return std::make_unique<KvPagePool>(shape, std::move(memory));
}

absl::StatusOr<LogitsView> CudaModel::Forward(std::span<const ForwardItem> items) {
  TANDEM_RETURN_IF_ERROR(Run(items, {.logits_to_host = true}));
  return backend_->host_logits();
}

absl::StatusOr<DeviceLogits> CudaModel::ForwardOnDevice(std::span<const ForwardItem> items,
                                                        const int32_t* token_ids) {
  TANDEM_RETURN_IF_ERROR(Run(items, {.token_ids = token_ids}));
  return backend_->device_logits();
}

absl::Status CudaModel::Run(std::span<const ForwardItem> items, const CudaBackend::Ends& ends) {
  if (page_memory_ == nullptr) return Internal("forward pass before TakePages");
  TANDEM_RETURN_IF_ERROR(Select());
  backend_->SetEnds(ends);
  return decoder_.Run(items);
}

}  // namespace tandem
