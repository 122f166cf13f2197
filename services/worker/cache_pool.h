// The KV caches of a worker: one for each open slot, all on the pages of one pool.
#ifndef TANDEM_SERVICES_WORKER_CACHE_POOL_H_
#define TANDEM_SERVICES_WORKER_CACHE_POOL_H_

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "common/model/kv_cache.h"
#include "common/model/kv_page_pool.h"

namespace tandem {

// Shared by all sessions, used by the one thread that computes. A cache is only books until rows
// come.
class CachePool {
 public:
  struct Return {
    CachePool* pool = nullptr;
    void operator()(KvCache* cache) const;
  };
  // One cache, empty, given back when it goes. The pool must outlive it.
  using Lease = std::unique_ptr<KvCache, Return>;

  // `size` caches of at most `max_rows` rows.
  CachePool(std::unique_ptr<KvPagePool> pages, size_t size, size_t max_rows)
      : pages_(std::move(pages)), size_(size), max_rows_(max_rows) {}

  // RESOURCE_EXHAUSTED when all are leased.
  absl::StatusOr<Lease> Take();

  KvPagePool& pages() const { return *pages_; }
  size_t size() const { return size_; }  // leased and free
  size_t num_free() const { return size_ - num_leased_; }
  size_t max_rows() const { return max_rows_; }  // of each cache

 private:
  std::unique_ptr<KvPagePool> pages_;
  size_t size_;
  size_t max_rows_;
  size_t num_leased_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_CACHE_POOL_H_
