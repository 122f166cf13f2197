// A slot's keys and values in one reserved stretch of memory.
#ifndef TANDEM_COMMON_MODEL_CONTIGUOUS_KV_CACHE_H_
#define TANDEM_COMMON_MODEL_CONTIGUOUS_KV_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/model/kv_cache.h"
#include "common/model/model_config.h"
#include "kernels/attention.h"

namespace tandem {

// F32 (docs/adr/0005-kv-cache-f32.md). Pages are reserved by mmap and touched only as rows are
// written.
class ContiguousKvCache final : public KvCache {
 public:
  static uint64_t Bytes(const ModelConfig& config, size_t rows);

  // RESOURCE_EXHAUSTED when the address space has no room.
  static absl::StatusOr<std::unique_ptr<ContiguousKvCache>> Create(const ModelConfig& config,
                                                                   size_t max_rows);
  ~ContiguousKvCache() override;
  ContiguousKvCache(const ContiguousKvCache&) = delete;
  ContiguousKvCache& operator=(const ContiguousKvCache&) = delete;

  size_t length() const override { return length_; }
  size_t capacity() const override { return capacity_; }
  void TruncateTo(size_t length) override;

  // Counts rows whose keys and values have been written. PRECOND: length() + rows <= capacity().
  void Grow(size_t rows);

  KvLayer Layer(size_t layer) const;

 private:
  ContiguousKvCache(float* data, uint64_t bytes, const ModelConfig& config, size_t max_rows);

  float* data_;
  uint64_t bytes_;
  size_t num_layers_;
  size_t num_kv_heads_;
  size_t head_size_;
  size_t num_blocks_;
  size_t capacity_;
  size_t length_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CONTIGUOUS_KV_CACHE_H_
