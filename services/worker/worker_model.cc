#include "services/worker/worker_model.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>

#include "common/model/checkpoint/foreign_model.h"
#include "common/rpc/protocol.h"
#include "common/status.h"
#include "kernels/amx/matrix_units.h"
#include "kernels/cpu.h"
#include "kernels/support/activation_precision.h"
#include "services/worker/host_identity.h"
#include "services/worker/model_folder_entry.h"

namespace tandem {
namespace {

// Returns the size of the physical memory, or the control group's limit if the limit is lower.
uint64_t UsableMemoryBytes() {
  uint64_t bytes = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                   static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
  std::ifstream limit("/sys/fs/cgroup/memory.max");
  uint64_t limit_bytes = 0;
  if (limit >> limit_bytes) bytes = std::min(bytes, limit_bytes);  // "max" is not a number
  return bytes;
}

// Returns the rows of a cache that the options ask for, within the model's limit.
size_t WantedRows(const WorkerModelOptions& options, const ModelDescription& config) {
  const size_t limit = config.max_position_embeddings;
  return options.max_context != 0 ? std::min(options.max_context, limit) : limit;
}

// Chooses how the CPU multiplies. All models of a process are loaded with the same choice.
absl::Status ChooseProducts(const WorkerModelOptions& options) {
  const bool rounds = options.activation_precision == "bf16";
  AllowMatrixUnits(options.matrix_units == "on" || (options.matrix_units == "auto" && !rounds));
  if (options.matrix_units == "on" && !UsesMatrixUnits()) {
    return FailedPrecondition(
        "--matrix-units on: this processor has no AMX-BF16, or the system forbids it (auto uses "
        "the units only where there are some)");
  }
  RoundActivations(rounds && options.matrix_units != "on");
  if (!rounds || RoundsActivations()) return absl::OkStatus();
  if (options.matrix_units == "on") {
    return FailedPrecondition(
        "--activation-precision bf16: the matrix units multiply exact activations; use exact, or "
        "--matrix-units off");
  }
  return FailedPrecondition(
      "--activation-precision bf16: this processor does not multiply BF16 numbers (AVX512-BF16), "
      "so rounding would gain nothing; use exact");
}

}  // namespace

absl::StatusOr<DrafterRoom> RoomForAllHeads(const std::filesystem::path& heads_folder,
                                            const ModelDescription& target) {
  DrafterRoom room;
  if (heads_folder.empty()) return room;
  std::error_code ignored;
  if (!std::filesystem::is_directory(heads_folder, ignored)) {
    return InvalidArgument("--heads-folder: " + heads_folder.string() +
                           " is no folder (want a folder with folders of heads)");
  }
  if (std::filesystem::exists(heads_folder / "config.json", ignored)) {
    return InvalidArgument("--heads-folder: " + heads_folder.string() +
                           " has a config.json itself (want the folder that has the folders of "
                           "heads; --heads takes heads)");
  }
  std::string names;
  for (const std::string& name : ModelsIn(heads_folder)) {
    const absl::StatusOr<DrafterRoom> needed = DrafterRoom::OfFolder(heads_folder / name, target);
    if (needed.ok()) {
      room.Cover(*needed);
      names += (names.empty() ? "" : ", ") + name;
    } else {
      spdlog::debug("--heads-folder: {} has no heads for this target: {}", name,
                    std::string(needed.status().message()));
    }
  }
  if (names.empty()) {
    spdlog::warn("--heads-folder: {} has no heads for this target yet", heads_folder.string());
  } else {
    spdlog::info("heads that may be swapped in: {}", names);
  }
  return room;
}

absl::StatusOr<std::unique_ptr<WorkerModel>> WorkerModel::Load(const WorkerModelOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckModelFolder(options.folder));
  std::string why_not_cuda;
  if (options.backend != "cpu") {
    absl::StatusOr<DeviceModel> loaded =
        options.load_on_gpu ? options.load_on_gpu(options)
                            : FailedPrecondition("this program was built without CUDA");
    if (loaded.ok()) {
      TANDEM_ASSIGN_OR_RETURN(auto tokenizer, Tokenizer::Load(options.folder));
      TANDEM_ASSIGN_OR_RETURN(auto worker, Make(options, std::move(loaded->model),
                                                std::move(tokenizer), std::move(loaded->pages)));
      worker->backend_ = "cuda";
      worker->numerics_id_ = std::move(loaded->numerics_id);
      worker->device_ = std::move(loaded->device);
      worker->device_uuid_ = std::move(loaded->uuid);
      worker->create_ring_rows_ = std::move(loaded->create_ring_rows);
      worker->open_ring_rows_ = std::move(loaded->open_ring_rows);
      worker->pin_memory_ = std::move(loaded->pin_memory);
      worker->is_device_lost_ = std::move(loaded->is_lost);
      return worker;
    }
    // The operator must fix a fault of the model or of the memory. The CPU is no way around it.
    if (options.backend == "cuda" || !absl::IsFailedPrecondition(loaded.status())) {
      return loaded.status();
    }
    why_not_cuda = std::string(loaded.status().message());
  }
  TANDEM_RETURN_IF_ERROR(ChooseProducts(options));
  auto threads = std::make_unique<ThreadPool>(options.threads);
  TANDEM_ASSIGN_OR_RETURN(auto model,
                          LanguageModel::Load(options.folder, threads.get(), options.heads));
  TANDEM_ASSIGN_OR_RETURN(const DrafterRoom room,
                          RoomForAllHeads(options.heads_folder, model->description()));
  model->ReserveFor(room);
  TANDEM_ASSIGN_OR_RETURN(auto tokenizer, Tokenizer::Load(options.folder));
  TANDEM_ASSIGN_OR_RETURN(
      auto worker, Create(options, std::move(threads), std::move(model), std::move(tokenizer)));
  worker->why_not_cuda_ = std::move(why_not_cuda);
  return worker;
}

absl::StatusOr<std::unique_ptr<WorkerModel>> WorkerModel::Create(
    const WorkerModelOptions& options, std::unique_ptr<ThreadPool> threads,
    std::unique_ptr<LanguageModel> model, std::unique_ptr<Tokenizer> tokenizer) {
  const ModelDescription& config = model->description();
  const KvShape shape = model->kv_shape();
  const uint64_t fillable =
      options.max_slots * HostKvMemory::Bytes(shape, WantedRows(options, config));
  TANDEM_ASSIGN_OR_RETURN(
      std::unique_ptr<KvPagePool> pages,
      KvPagePool::Create(shape, options.kv_cache_bytes != 0
                                    ? options.kv_cache_bytes
                                    : std::min(UsableMemoryBytes() / 4, fillable)));
  TANDEM_ASSIGN_OR_RETURN(auto worker,
                          Make(options, std::move(model), std::move(tokenizer), std::move(pages)));
  worker->threads_ = std::move(threads);
  worker->numerics_id_ = NumericsId();
  worker->device_ = InstructionSet() + ", " + std::to_string(options.threads) + " threads";
  return worker;
}

absl::StatusOr<std::unique_ptr<WorkerModel>> WorkerModel::Make(const WorkerModelOptions& options,
                                                               std::unique_ptr<LanguageModel> model,
                                                               std::unique_ptr<Tokenizer> tokenizer,
                                                               std::unique_ptr<KvPagePool> pages) {
  std::unique_ptr<WorkerModel> worker(new WorkerModel());
  worker->name_ = options.name;
  worker->guesses_ = options.guesses;
  if (worker->name_.empty()) worker->name_ = NameOfFolder(options.folder);
  worker->heads_ = {.first = options.heads, .folder = options.heads_folder};
  worker->model_ = std::move(model);
  worker->tokenizer_ = std::move(tokenizer);
  const auto fingerprint = worker->tokenizer_->Fingerprint();
  worker->vocabulary_fingerprint_.assign(fingerprint.begin(), fingerprint.end());
  const ModelDescription& config = worker->model_->description();
  const size_t limit = config.max_position_embeddings;
  if (options.max_context > limit && !options.may_cut_context) {
    return InvalidArgument("--max-context " + std::to_string(options.max_context) +
                           ": config.json's max_position_embeddings is " + std::to_string(limit));
  }
  const size_t max_context = std::min(WantedRows(options, config), pages->num_pages() * kPageRows);
  if (options.max_context > max_context && !options.may_cut_context) {
    const size_t needed = (options.max_context + kPageRows - 1) / kPageRows;
    return InvalidArgument(
        "--max-context " + std::to_string(options.max_context) + ": takes " +
        std::to_string(needed * pages->page_bytes()) + " bytes of KV cache, there are " +
        std::to_string(pages->num_pages() * pages->page_bytes()) + " (--kv-cache-bytes)");
  }
  worker->context_limited_by_pages_ = max_context < WantedRows(options, config);
  worker->caches_ = std::make_unique<CachePool>(std::move(pages), options.max_slots, max_context);
  return worker;
}

void WorkerModel::CheckDevice(const absl::Status& failure) const {
  // A lost device fails with one of these two codes. Other codes blame the request, or say that
  // there is no room.
  if (!absl::IsInternal(failure) && !absl::IsFailedPrecondition(failure)) return;
  if (is_device_lost_ && is_device_lost_() && on_device_loss_) on_device_loss_(failure);
}

v1::AttachReply WorkerModel::Describe() const {
  v1::AttachReply reply;
  reply.set_protocol_version(kProtocolVersion);
  reply.set_version(TANDEM_VERSION);
  reply.set_model(name_);
  reply.set_backend(backend_);
  reply.set_numerics_id(numerics_id_);
  reply.set_model_fingerprint(model_->fingerprint());
  reply.set_vocabulary_size(static_cast<uint32_t>(vocabulary_size()));
  reply.set_vocabulary_fingerprint(vocabulary_fingerprint_);
  reply.set_max_context_tokens(static_cast<uint32_t>(caches_->max_rows()));
  reply.set_context_limited_by_pages(context_limited_by_pages_);
  reply.set_max_slots(static_cast<uint32_t>(caches_->size()));
  const KvPagePool& pages = caches_->pages();
  reply.set_kv_cache_bytes(pages.num_pages() * pages.page_bytes());
  reply.set_page_tokens(kPageRows);
  reply.set_num_pages(static_cast<uint32_t>(pages.num_pages()));
  reply.set_weight_bytes(model_->weight_bytes());
  reply.set_boot_id(BootId());
  reply.set_pid_namespace(PidNamespace());
  reply.set_device_uuid(device_uuid_);
  return reply;
}

}  // namespace tandem
