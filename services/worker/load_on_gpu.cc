#include "services/worker/load_on_gpu.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/cuda/cuda_model.h"
#include "common/ring/cuda/cuda_ring_rows.h"
#include "common/status.h"
#include "kernels/device/device.h"
#include "kernels/device/device_stream.h"

namespace tandem {

absl::StatusOr<DeviceModel> LoadOnGpu(const WorkerModelOptions& options) {
  constexpr uint64_t kLarge = uint64_t{1} << 30;
  uint64_t tenths = 0;
  const auto log_progress = [&tenths](uint64_t done, uint64_t all) {
    if (all < kLarge || done * 10 / all == tenths) return;
    tenths = done * 10 / all;
    spdlog::info("weights: {} % of {} MiB are on the GPU", 10 * tenths, all >> 20);
  };
  const auto log_no_graphs = [](const absl::Status& why) {
    spdlog::warn("passes run kernel by kernel from now on, without CUDA graphs: {}",
                 std::string(why.message()));
  };
  const auto log_checked = [](std::chrono::nanoseconds took) {
    using Milliseconds = std::chrono::duration<double, std::milli>;
    spdlog::info("the GPU's kernels were checked in {:.1f} ms", Milliseconds(took).count());
  };
  const bool is_exact = options.activation_precision == "exact";
  TANDEM_ASSIGN_OR_RETURN(const ModelDescription target, ModelDescription::Load(options.folder));
  TANDEM_ASSIGN_OR_RETURN(const DrafterRoom room, RoomForAllHeads(options.heads_folder, target));
  TANDEM_ASSIGN_OR_RETURN(
      auto model, CudaModel::Load(options.folder, {.device = options.gpu,
                                                   .heads = options.heads,
                                                   .swaps_heads = !options.heads_folder.empty(),
                                                   .heads_room = room,
                                                   .memory_bytes = options.gpu_memory_bytes,
                                                   .kv_cache_bytes = options.kv_cache_bytes,
                                                   .max_context = options.max_context,
                                                   .max_slots = options.max_slots,
                                                   .judges = options.judges,
                                                   .exact_activations = is_exact,
                                                   .checks_kernels = options.checks_gpu,
                                                   .on_kernels_checked = log_checked,
                                                   .on_progress = log_progress,
                                                   .on_no_graphs = log_no_graphs}));
  DeviceModel loaded;
  const DeviceInfo& device = model->device();
  const std::string capability = absl::StrCat(device.capability / 10, ".", device.capability % 10);
  loaded.device = absl::StrCat(device.name, ", compute capability ", capability);
  // Raise the number when a change to a kernel changes bits. The compilers of different drivers may
  // turn PTX into different code. For the capabilities that the build compiles for, the machine
  // code comes from the build.
  loaded.numerics_id =
      absl::StrCat("cuda/", capability, "/4", model->rounds_activations() ? "+BF16" : "");
  loaded.uuid = device.uuid;
  const CudaModel* const owner = model.get();
  loaded.create_ring_rows = [owner](const RingGeometry& geometry,
                                    uint64_t nonce) -> absl::StatusOr<std::unique_ptr<RingRows>> {
    TANDEM_RETURN_IF_ERROR(SelectDevice(owner->device().index));
    return CudaRingRows::Create(geometry, nonce, &owner->stream());
  };
  loaded.open_ring_rows = [owner](const RingGeometry& geometry, std::span<const RingHandle> handles)
      -> absl::StatusOr<std::unique_ptr<OpenedRingRows>> {
    TANDEM_RETURN_IF_ERROR(SelectDevice(owner->device().index));
    return OpenedCudaRingRows::Open(geometry, handles, &owner->stream());
  };
  loaded.pin_memory = [owner](void* memory, size_t bytes) -> std::shared_ptr<void> {
    absl::StatusOr<PinnedRange> pinned = [&]() -> absl::StatusOr<PinnedRange> {
      TANDEM_RETURN_IF_ERROR(SelectDevice(owner->device().index));
      return PinnedRange::Create(memory, bytes);
    }();
    if (pinned.ok()) return std::make_shared<PinnedRange>(*std::move(pinned));
    spdlog::warn("ring: its {} MiB are not pinned, so copies take longer: {}", bytes >> 20,
                 std::string(pinned.status().message()));
    return nullptr;
  };
  loaded.is_lost = [index = device.index] { return IsDeviceLost(index); };
  TANDEM_ASSIGN_OR_RETURN(loaded.pages, model->TakePages());
  loaded.model = std::move(model);
  return loaded;
}

}  // namespace tandem
