// The KV caches of a worker, made at start and leased to slots.
#ifndef TANDEM_SERVICES_WORKER_CACHE_POOL_H_
#define TANDEM_SERVICES_WORKER_CACHE_POOL_H_

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/kv_cache.h"
#include "common/model/llama.h"

namespace tandem {

// Shared by all sessions, used by the one thread that computes.
class CachePool {
 public:
  // One cache, empty, given back when it goes. The pool must outlive it.
  class Lease {
   public:
    Lease() = default;
    Lease(CachePool* pool, std::unique_ptr<KvCache> cache)
        : pool_(pool), cache_(std::move(cache)) {}
    Lease(Lease&& other) noexcept = default;
    Lease& operator=(Lease&& other) noexcept {
      std::swap(pool_, other.pool_);
      std::swap(cache_, other.cache_);
      return *this;
    }
    ~Lease() {
      if (cache_ != nullptr) pool_->Return(std::move(cache_));
    }

    KvCache* get() const { return cache_.get(); }
    KvCache* operator->() const { return cache_.get(); }
    explicit operator bool() const { return cache_ != nullptr; }

   private:
    CachePool* pool_ = nullptr;
    std::unique_ptr<KvCache> cache_;
  };

  // `count` caches of `max_rows` rows.
  static absl::StatusOr<std::unique_ptr<CachePool>> Create(const LlamaModel& model, size_t count,
                                                           size_t max_rows);

  // RESOURCE_EXHAUSTED when all are leased.
  absl::StatusOr<Lease> Take();

  size_t size() const { return size_; }  // leased and free
  size_t num_free() const { return free_.size(); }
  size_t max_rows() const { return max_rows_; }  // of each cache

 private:
  CachePool(std::vector<std::unique_ptr<KvCache>> caches, size_t max_rows)
      : free_(std::move(caches)), size_(free_.size()), max_rows_(max_rows) {}
  void Return(std::unique_ptr<KvCache> cache);

  std::vector<std::unique_ptr<KvCache>> free_;
  size_t size_;
  size_t max_rows_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_CACHE_POOL_H_
