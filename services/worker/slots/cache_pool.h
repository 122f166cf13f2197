// The KV caches of a worker: one cache for each open slot, all of them on the pages of one pool.
#ifndef TANDEM_SERVICES_WORKER_SLOTS_CACHE_POOL_H_
#define TANDEM_SERVICES_WORKER_SLOTS_CACHE_POOL_H_

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "common/model/kv/kv_cache.h"
#include "common/model/kv/kv_page_pool.h"

namespace tandem {

// All sessions share the pool, in the one thread that computes. A cache takes no pages until it
// gets rows.
class CachePool {
 public:
  struct Return {
    CachePool* pool = nullptr;
    void operator()(KvCache* cache) const;
  };
  // An empty cache that returns to the pool when the lease is destroyed. The pool must outlive the
  // lease.
  using Lease = std::unique_ptr<KvCache, Return>;

  // Makes `size` caches of at most `max_rows` rows each.
  CachePool(std::unique_ptr<KvPagePool> pages, size_t size, size_t max_rows)
      : pages_(std::move(pages)), size_(size), max_rows_(max_rows) {}

  // RESOURCE_EXHAUSTED: all caches are leased.
  absl::StatusOr<Lease> Take();

  KvPagePool& pages() { return *pages_; }
  const KvPagePool& pages() const { return *pages_; }
  size_t size() const { return size_; }  // leased and free caches
  size_t num_free() const { return size_ - num_leased_; }
  size_t max_rows() const { return max_rows_; }  // rows that each cache can hold

 private:
  std::unique_ptr<KvPagePool> pages_;
  size_t size_;
  size_t max_rows_;
  size_t num_leased_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_SLOTS_CACHE_POOL_H_
