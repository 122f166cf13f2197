// Everything about its model that a worker needs: weights, vocabulary, KV caches.
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
#include "common/model/llama.h"
#include "common/ring/ring_memory.h"
#include "common/ring/ring_rows.h"
#include "common/tokenizer/tokenizer.h"
#include "kernels/thread_pool.h"
#include "services/worker/cache_pool.h"
#include "services/worker/worker_stats.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

struct WorkerModelOptions;

// A model and all its pages, on a device that it brought along.
struct DeviceModel {
  std::unique_ptr<LlamaModel> model;
  std::unique_ptr<KvPagePool> pages;
  std::string numerics_id;  // see NumericsId in kernels/cpu.h
  std::string device;       // for people: "NVIDIA H200, compute capability 9.0"
  std::string uuid;         // of the device: equal ones can share its memory
  CreateRingRows create_ring_rows;
  OpenRingRows open_ring_rows;
  PinMemory pin_memory;
  // Whether all further calls of the device fail (IsDeviceLost in kernels/cuda/device.h).
  std::function<bool()> is_lost;
};
// FAILED_PRECONDITION: there is no such device here, and why. Other errors are the model's, or of
// memory.
using DeviceModelLoader = std::function<absl::StatusOr<DeviceModel>(const WorkerModelOptions&)>;

struct WorkerModelOptions {
  std::filesystem::path folder;
  std::string name = {};  // empty: the folder's
  int threads = 1;
  size_t max_slots = 64;   // caches at once
  size_t max_context = 0;  // rows of each; 0: what the model can, and the pages hold
  // The page pool; 0: a quarter of the memory that this process may use, or what all slots can fill.
  uint64_t kv_cache_bytes = 0;
  // What to do with a max_context over the model's own limit: cut it, or refuse it.
  bool may_cut_context = false;
  // "cpu", "cuda", or "auto": cuda where it can be had, else cpu.
  std::string backend = "cpu";
  int gpu = 0;                    // which, as the driver counts
  uint64_t gpu_memory_bytes = 0;  // see CudaLlamaOptions
  bool judges = false;            // it is the target: on a GPU, room for drafts to judge
  // How the backend "cuda" loads a model; none: this program was built without CUDA.
  DeviceModelLoader load_on_gpu = {};
};

class WorkerModel {
 public:
  static absl::StatusOr<std::unique_ptr<WorkerModel>> Load(const WorkerModelOptions& options);
  // From parts, on the CPU; `threads` may be null where the model needs none.
  static absl::StatusOr<std::unique_ptr<WorkerModel>> Create(const WorkerModelOptions& options,
                                                             std::unique_ptr<ThreadPool> threads,
                                                             std::unique_ptr<LlamaModel> model,
                                                             std::unique_ptr<Tokenizer> tokenizer);

  LlamaModel& model() const { return *model_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  CachePool& caches() const { return *caches_; }
  WorkerStats& stats() const { return *stats_; }
  size_t vocabulary_size() const { return model_->config().vocabulary_size; }

  // What a router is told, but for the transports.
  v1::AttachReply Describe() const;
  // Both ends of a ring in the device's memory; none on the CPU.
  const CreateRingRows& create_ring_rows() const { return create_ring_rows_; }
  const OpenRingRows& open_ring_rows() const { return open_ring_rows_; }
  // For rings in the host's memory that a device reads and writes; none on the CPU.
  const PinMemory& pin_memory() const { return pin_memory_; }
  // What computes, for people: "AVX2, 2 threads", or the GPU's name.
  const std::string& device() const { return device_; }
  // Why the backend "auto" chose the CPU; empty where it did not.
  const std::string& why_not_cuda() const { return why_not_cuda_; }

  // What to do once the device is lost, and with it all that this process could compute: end it, so
  // that another is started. `why` is the failure that showed it. To be set before a session begins.
  void OnDeviceLoss(std::function<void(const absl::Status& why)> call) {
    on_device_loss_ = std::move(call);
  }
  // After a failure that may be the device's, and before a router is told of it: whom a lost device
  // would have taken for the request's fault. Calls OnDeviceLoss's function where it is lost.
  void CheckDevice(const absl::Status& failure) const;

 private:
  WorkerModel() = default;
  static absl::StatusOr<std::unique_ptr<WorkerModel>> Make(const WorkerModelOptions& options,
                                                           std::unique_ptr<LlamaModel> model,
                                                           std::unique_ptr<Tokenizer> tokenizer,
                                                           std::unique_ptr<KvPagePool> pages);

  std::string name_;
  std::string backend_ = "cpu";
  std::string numerics_id_;
  std::string device_;
  std::string device_uuid_;
  CreateRingRows create_ring_rows_;
  OpenRingRows open_ring_rows_;
  PinMemory pin_memory_;
  std::function<bool()> is_device_lost_;  // none on the CPU
  std::function<void(const absl::Status& why)> on_device_loss_;
  std::string why_not_cuda_;
  std::unique_ptr<ThreadPool> threads_;
  std::unique_ptr<LlamaModel> model_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::string vocabulary_fingerprint_;
  std::unique_ptr<CachePool> caches_;
  bool context_limited_by_pages_ = false;
  std::unique_ptr<WorkerStats> stats_ = std::make_unique<WorkerStats>();
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_WORKER_MODEL_H_
