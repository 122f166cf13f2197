// Everything about its model that a worker needs: weights, vocabulary, KV caches.
#ifndef TANDEM_SERVICES_WORKER_WORKER_MODEL_H_
#define TANDEM_SERVICES_WORKER_WORKER_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/model/llama.h"
#include "common/tokenizer/tokenizer.h"
#include "kernels/thread_pool.h"
#include "services/worker/cache_pool.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

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
};

class WorkerModel {
 public:
  static absl::StatusOr<std::unique_ptr<WorkerModel>> Load(const WorkerModelOptions& options);
  // From parts; `threads` may be null where the model needs none.
  static absl::StatusOr<std::unique_ptr<WorkerModel>> Create(const WorkerModelOptions& options,
                                                             std::unique_ptr<ThreadPool> threads,
                                                             std::unique_ptr<LlamaModel> model,
                                                             std::unique_ptr<Tokenizer> tokenizer);

  LlamaModel& model() const { return *model_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  CachePool& caches() const { return *caches_; }
  size_t vocabulary_size() const { return model_->config().vocabulary_size; }

  // What a router is told, but for the transports.
  v1::AttachReply Describe() const;

 private:
  WorkerModel() = default;

  std::string name_;
  std::unique_ptr<ThreadPool> threads_;
  std::unique_ptr<LlamaModel> model_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::string vocabulary_fingerprint_;
  std::unique_ptr<CachePool> caches_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_WORKER_MODEL_H_
