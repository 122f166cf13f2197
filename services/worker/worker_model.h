// What a worker has of its model: weights, vocabulary, KV caches, and counts of what was done.
#ifndef TANDEM_SERVICES_WORKER_WORKER_MODEL_H_
#define TANDEM_SERVICES_WORKER_WORKER_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/drafter_room.h"
#include "common/model/language_model.h"
#include "common/ring/ring_memory.h"
#include "common/ring/ring_rows.h"
#include "common/tokenizer/tokenizer.h"
#include "kernels/thread_pool.h"
#include "services/worker/slots/cache_pool.h"
#include "services/worker/worker_stats.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

struct WorkerModelOptions;

// A model on a device, with its pages.
struct DeviceModel {
  std::unique_ptr<LanguageModel> model;
  std::unique_ptr<KvPagePool> pages;
  std::string numerics_id;  // see NumericsId in kernels/cpu.h
  std::string device;       // for people: "NVIDIA H200, compute capability 9.0"
  std::string uuid;         // processes whose devices have equal ids can share its memory
  CreateRingRows create_ring_rows;
  OpenRingRows open_ring_rows;
  PinMemory pin_memory;
  // Returns true if all further calls of the device fail (see IsDeviceLost in
  // kernels/device/device.h).
  std::function<bool()> is_lost;
};
// FAILED_PRECONDITION: there is no such device, or it computes wrong, and the message says why.
// Other errors concern the model or the memory.
using DeviceModelLoader = std::function<absl::StatusOr<DeviceModel>(const WorkerModelOptions&)>;

struct WorkerModelOptions {
  std::filesystem::path folder;
  std::filesystem::path heads = {};  // folder of the heads that draft for the model; empty: none
  std::filesystem::path heads_folder = {};  // has folders of heads that may be swapped in; or empty
  std::string name = {};                    // empty: the name of the folder
  int threads = 1;
  size_t max_slots = 64;   // number of KV caches
  size_t max_context = 0;  // rows of each cache; 0: the limit of the model and of the page pool
  // Size of the page pool. 0: a quarter of the memory that this process may use, or the size that
  // all slots can fill if that is less.
  uint64_t kv_cache_bytes = 0;
  // True: a max_context over the model's own limit is cut to the limit. False: it is an error.
  bool may_cut_context = false;
  // "cpu", "cuda", or "auto". "auto" means cuda if a GPU can be used, and cpu otherwise.
  std::string backend = "cpu";
  std::string matrix_units = "off";  // "off", "on" or "auto": those of the CPU (AMX)
  // "exact" (F32), or "bf16": activations are rounded before BF16 weights. "auto" means exact on a
  // CPU (kernels/support/activation_precision.h) and bf16 on a GPU (CudaModelOptions).
  std::string activation_precision = "auto";
  int gpu = 0;                    // index of the GPU, as the driver counts
  uint64_t gpu_memory_bytes = 0;  // see CudaModelOptions
  bool checks_gpu = true;         // its kernels are checked before the model is loaded
  bool judges = false;            // true for the target: on a GPU, memory for judging is set aside
  // A drafter guesses what its model will draw (HostProposer).
  bool guesses = true;
  // Loads a model for the backend "cuda". Empty: this program was built without CUDA.
  DeviceModelLoader load_on_gpu = {};
};

struct HeadsOptions {
  std::filesystem::path first;   // folder of the heads that the worker begins with; empty: none
  std::filesystem::path folder;  // has the folders of heads that may replace them; empty: none may
};

// Returns what pages must hold so that all heads of --heads-folder can be adopted. An empty path
// means that there is none. The log names the heads. INVALID_ARGUMENT: the path is no folder, or a
// folder of heads.
absl::StatusOr<DrafterRoom> RoomForAllHeads(const std::filesystem::path& heads_folder,
                                            const ModelDescription& target);

class WorkerModel {
 public:
  static absl::StatusOr<std::unique_ptr<WorkerModel>> Load(const WorkerModelOptions& options);
  // Makes a worker's model from parts, on the CPU. `threads` may be null if the model needs none.
  static absl::StatusOr<std::unique_ptr<WorkerModel>> Create(const WorkerModelOptions& options,
                                                             std::unique_ptr<ThreadPool> threads,
                                                             std::unique_ptr<LanguageModel> model,
                                                             std::unique_ptr<Tokenizer> tokenizer);

  LanguageModel& model() { return *model_; }
  const LanguageModel& model() const { return *model_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  CachePool& caches() { return *caches_; }
  const CachePool& caches() const { return *caches_; }
  WorkerStats& stats() { return stats_; }
  const WorkerStats& stats() const { return stats_; }
  size_t vocabulary_size() const { return model_->description().vocabulary_size; }

  bool guesses() const { return guesses_; }  // as of the options

  const HeadsOptions& heads() const { return heads_; }  // as of the options

  // Returns what a router is told at attach, without the ring transports and the heads.
  v1::AttachReply Describe() const;
  // The two ends of a ring in device memory. Empty on the CPU.
  const CreateRingRows& create_ring_rows() const { return create_ring_rows_; }
  const OpenRingRows& open_ring_rows() const { return open_ring_rows_; }
  // Pins the host memory of a ring that a device reads and writes. Empty on the CPU.
  const PinMemory& pin_memory() const { return pin_memory_; }
  // The hardware that computes, for people: "AVX2, 2 threads", or the name of the GPU.
  const std::string& device() const { return device_; }
  // The reason why the backend "auto" chose the CPU. Empty if "auto" did not choose the CPU.
  const std::string& why_not_cuda() const { return why_not_cuda_; }

  // Sets what to do when the device is lost. This process cannot compute any more then, and must
  // end so that another one is started. `why` is the failure that showed the loss. To be set before
  // a session begins.
  void OnDeviceLoss(std::function<void(const absl::Status& why)> call) {
    on_device_loss_ = std::move(call);
  }
  // Calls OnDeviceLoss's function if the device is lost. To be called after each failure, before
  // the router is told: otherwise the router would blame the request for the loss of the device.
  void CheckDevice(const absl::Status& failure) const;

 private:
  WorkerModel() = default;
  static absl::StatusOr<std::unique_ptr<WorkerModel>> Make(const WorkerModelOptions& options,
                                                           std::unique_ptr<LanguageModel> model,
                                                           std::unique_ptr<Tokenizer> tokenizer,
                                                           std::unique_ptr<KvPagePool> pages);

  std::string name_;
  HeadsOptions heads_;
  std::string backend_ = "cpu";
  std::string numerics_id_;
  std::string device_;
  std::string device_uuid_;
  CreateRingRows create_ring_rows_;
  OpenRingRows open_ring_rows_;
  PinMemory pin_memory_;
  std::function<bool()> is_device_lost_;  // empty on the CPU
  std::function<void(const absl::Status& why)> on_device_loss_;
  std::string why_not_cuda_;
  std::unique_ptr<ThreadPool> threads_;
  std::unique_ptr<LanguageModel> model_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::string vocabulary_fingerprint_;
  std::unique_ptr<CachePool> caches_;
  bool context_limited_by_pages_ = false;
  bool guesses_ = true;
  WorkerStats stats_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_WORKER_MODEL_H_
