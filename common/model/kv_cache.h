// Keys and values of one slot, for all layers.
#ifndef TANDEM_COMMON_MODEL_KV_CACHE_H_
#define TANDEM_COMMON_MODEL_KV_CACHE_H_

#include <cstddef>

namespace tandem {

class KvCache {
 public:
  virtual ~KvCache() = default;
  virtual size_t length() const = 0;    // rows held
  virtual size_t capacity() const = 0;  // rows at most
  // Keeps rows [0, length). PRECOND: length <= length(). Debug builds fill the rows given back with
  // NaN.
  virtual void TruncateTo(size_t length) = 0;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_KV_CACHE_H_
