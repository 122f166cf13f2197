#include "common/model/cuda/cuda_model.h"

#include <algorithm>
#include <tuple>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/checkpoint/checkpoint.h"
#include "common/model/model_fingerprint.h"
#include "common/model/model_weights.h"
#include "common/status.h"
#include "kernels/attention.h"

namespace tandem {
namespace {

absl::Status CheckSizes(const std::filesystem::path& folder, const ModelDescription& model) {
  const std::pair<const char*, size_t> sizes[] = {
      {"hidden_size", model.hidden_size},
      {"intermediate_size", model.mlp.inner_size},
      {"num_attention_heads * head_dim", model.attention.query_floats()}};
  for (const auto& [name, size] : sizes) {
    if (size % 8 == 0) continue;
    return InvalidArgument(absl::StrCat((folder / "config.json").string(), ": ", name, " is ", size,
                                        ": on a GPU it must be a multiple of 8"));
  }
  return absl::OkStatus();
}

// Products that take the same rows are one product on a GPU, so their weights have one type.
absl::Status CheckTypes(const std::filesystem::path& folder, const ModelWeights& weights) {
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    const LayerWeights& layer = weights.layers[i];
    const std::tuple<const char*, const Linear*, const Linear*> pairs[] = {
        {"q_proj and k_proj", &layer.query, &layer.key},
        {"q_proj and v_proj", &layer.query, &layer.value},
        {"gate_proj and up_proj", &layer.gate, &layer.up}};
    for (const auto& [names, first, second] : pairs) {
      if (first->dtype == second->dtype) continue;
      return InvalidArgument(absl::StrCat(folder.string(), ": layer ", i, ": ", names, " are ",
                                          Name(first->dtype), " and ", Name(second->dtype),
                                          ": on a GPU they must have one type"));
    }
  }
  return absl::OkStatus();
}

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

CudaModel::CudaModel(ModelDescription description, CudaModelOptions options)
    : description_(std::move(description)),
      options_(std::move(options)),
      max_context_(MaxContext(description_, options_)),
      backend_(std::make_unique<CudaBackend>(
          &description_, &weights_,
          CudaBackend::Options{.max_context = max_context_,
                               .use_graphs = options_.use_graphs,
                               .exact_activations = options_.exact_activations,
                               .keeps_features = !options_.heads.empty(),
                               .on_no_graphs = options_.on_no_graphs})),
      decoder_(&description_, backend_.get()) {}

absl::StatusOr<std::unique_ptr<CudaModel>> CudaModel::Load(const std::filesystem::path& folder,
                                                           CudaModelOptions options) {
  TANDEM_ASSIGN_OR_RETURN(ModelDescription description, ModelDescription::Load(folder));
  TANDEM_RETURN_IF_ERROR(CheckSizes(folder, description));
  TANDEM_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(folder));
  TANDEM_ASSIGN_OR_RETURN(const ModelWeights weights, ModelWeights::Load(*checkpoint, description));
  TANDEM_RETURN_IF_ERROR(CheckTypes(folder, weights));
  checkpoint->WillNeed();
  std::unique_ptr<CudaModel> model(new CudaModel(std::move(description), std::move(options)));
  TANDEM_RETURN_IF_ERROR(model->LoadHeads(weights));
  TANDEM_ASSIGN_OR_RETURN(model->device_, UseDevice(model->options_.device));
  TANDEM_RETURN_IF_ERROR(
      CheckHeadSize(folder, model->description_, weights.embedding.dtype, model->device_));
  TANDEM_ASSIGN_OR_RETURN(model->stream_, DeviceStream::Create());
  TANDEM_RETURN_IF_ERROR(model->TakeMemory(weights));
  TANDEM_RETURN_IF_ERROR(model->Upload(weights));
  model->fingerprint_ = FingerprintModel(weights, model->description_);
  TANDEM_RETURN_IF_ERROR(checkpoint->CheckWhole());
  return model;
}

absl::Status CudaModel::LoadHeads(const ModelWeights& weights) {
  if (options_.heads.empty()) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(
      heads_, CudaHeads::Load(options_.heads, description_, weights.output, backend_.get(),
                              {.max_places = options_.max_slots,
                               .exact_activations = options_.exact_activations}));
  return absl::OkStatus();
}

absl::Status CudaModel::Upload(const ModelWeights& weights) {
  uint64_t before = 0;
  const auto report = [&](uint64_t done) {
    if (options_.on_progress) options_.on_progress(before + done, weight_bytes_);
  };
  TANDEM_ASSIGN_OR_RETURN(weights_, CudaWeights::Upload(weights, arena_, stream_, report));
  if (heads_ == nullptr) return absl::OkStatus();
  before = weight_bytes_ - heads_->weight_bytes();
  return heads_->Upload(weights_.output, arena_, report);
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
  const auto add = [&](auto** array, size_t count, const char*) {
    fixed_bytes += DeviceArena::Rounded(count * sizeof(**array));
    return absl::OkStatus();
  };
  TANDEM_RETURN_IF_ERROR(backend_->LayOut(add));
  TANDEM_RETURN_IF_ERROR(sampler_.LayOut(add));
  if (heads_ != nullptr) TANDEM_RETURN_IF_ERROR(heads_->LayOut(add));
  const uint64_t page_bytes = CudaKvMemory::PageBytes(description_, kv_dtype_);
  TANDEM_ASSIGN_OR_RETURN(const uint64_t kv_bytes, PageBudget(fixed_bytes, page_bytes));
  num_pages_ = kv_bytes / page_bytes;
  TANDEM_ASSIGN_OR_RETURN(
      arena_, DeviceArena::Create(fixed_bytes + DeviceArena::Rounded(num_pages_ * page_bytes)));
  const auto take = [&](auto** array, size_t count, const char* what) -> absl::Status {
    using Value = std::remove_reference_t<decltype(**array)>;
    TANDEM_ASSIGN_OR_RETURN(*array, arena_.Take<Value>(count, what));
    return absl::OkStatus();
  };
  TANDEM_RETURN_IF_ERROR(backend_->LayOut(take));
  TANDEM_RETURN_IF_ERROR(sampler_.LayOut(take));
  if (heads_ != nullptr) TANDEM_RETURN_IF_ERROR(heads_->LayOut(take));
  TANDEM_ASSIGN_OR_RETURN(kv_data_, arena_.Take<char>(num_pages_ * page_bytes, "the KV cache"));
  TANDEM_RETURN_IF_ERROR(backend_->Start(&stream_));
  if (heads_ != nullptr) TANDEM_RETURN_IF_ERROR(heads_->Start(&stream_));
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
  if (has_given_pages_) return Internal("the model's pages are taken already");
  has_given_pages_ = true;
  auto memory = std::make_unique<CudaKvMemory>(description_, kv_dtype_, kv_data_, num_pages_,
                                               &stream_, options_.spoil_freed_rows);
  backend_->UsePages(memory.get());
  return std::make_unique<KvPagePool>(description_, std::move(memory));
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
  if (!has_given_pages_) return Internal("forward pass before TakePages");
  TANDEM_RETURN_IF_ERROR(Select());
  backend_->SetEnds(ends);
  return decoder_.Run(items);
}

}  // namespace tandem
