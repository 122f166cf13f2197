#include "services/worker/slots/cache_pool.h"

#include <string>

#include "common/status.h"

namespace tandem {

void CachePool::Return::operator()(KvCache* cache) const {
  delete cache;
  --pool->num_leased_;
}

absl::StatusOr<CachePool::Lease> CachePool::Take() {
  if (num_leased_ == size_) {
    return ResourceExhausted("all " + std::to_string(size_) +
                             " KV caches are in use (--max-slots)");
  }
  ++num_leased_;
  return Lease(new KvCache(pages_.get(), max_rows_), Return{this});
}

}  // namespace tandem
