#include "services/worker/cache_pool.h"

#include <string>

#include "common/status.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<CachePool>> CachePool::Create(const LlamaModel& model, size_t count,
                                                             size_t max_rows) {
  std::vector<std::unique_ptr<KvCache>> caches;
  for (size_t i = 0; i < count; ++i) {
    TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<KvCache> cache, model.NewCache(max_rows));
    caches.push_back(std::move(cache));
  }
  return std::unique_ptr<CachePool>(new CachePool(std::move(caches), max_rows));
}

absl::StatusOr<CachePool::Lease> CachePool::Take() {
  if (free_.empty()) {
    return ResourceExhausted("all " + std::to_string(size_) +
                             " KV caches are in use (--max-slots)");
  }
  Lease lease(this, std::move(free_.back()));
  free_.pop_back();
  return lease;
}

void CachePool::Return(std::unique_ptr<KvCache> cache) {
  cache->TruncateTo(0);
  free_.push_back(std::move(cache));
}

}  // namespace tandem
