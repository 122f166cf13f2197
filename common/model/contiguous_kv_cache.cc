#include "common/model/contiguous_kv_cache.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "common/status.h"

namespace tandem {
namespace {

size_t NumBlocks(size_t rows) { return (rows + kKeyBlock - 1) / kKeyBlock; }

[[noreturn]] void Die(const char* what, size_t got, size_t limit) {
  std::fprintf(stderr, "KV cache: %s %zu, limit %zu\n", what, got, limit);
  std::abort();
}

}  // namespace

uint64_t ContiguousKvCache::Bytes(const ModelConfig& config, size_t rows) {
  return uint64_t{NumBlocks(rows)} * kKeyBlock * config.num_layers * config.num_kv_heads *
         config.head_size * 2 * sizeof(float);
}

absl::StatusOr<std::unique_ptr<ContiguousKvCache>> ContiguousKvCache::Create(
    const ModelConfig& config, size_t max_rows) {
  if (max_rows == 0 || max_rows > config.max_position_embeddings) {
    return InvalidArgument("KV cache: " + std::to_string(max_rows) +
                           " rows asked for (want 1 to max_position_embeddings, " +
                           std::to_string(config.max_position_embeddings) + ")");
  }
  const uint64_t bytes = Bytes(config, max_rows);
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return ResourceExhausted("KV cache: " + std::to_string(bytes) + " bytes for " +
                             std::to_string(max_rows) + " rows cannot be reserved");
  }
  return std::unique_ptr<ContiguousKvCache>(
      new ContiguousKvCache(static_cast<float*>(data), bytes, config, max_rows));
}

ContiguousKvCache::ContiguousKvCache(float* data, uint64_t bytes, const ModelConfig& config,
                                     size_t max_rows)
    : data_(data),
      bytes_(bytes),
      num_layers_(config.num_layers),
      num_kv_heads_(config.num_kv_heads),
      head_size_(config.head_size),
      num_blocks_(NumBlocks(max_rows)),
      capacity_(max_rows) {}

ContiguousKvCache::~ContiguousKvCache() { munmap(data_, bytes_); }

void ContiguousKvCache::TruncateTo(size_t length) {
  if (length > length_) Die("TruncateTo", length, length_);
#ifndef NDEBUG
  // Whoever reads a row that was given back gets NaN, and shows it.
  const std::vector<float> nans(num_kv_heads_ * head_size_,
                                std::numeric_limits<float>::quiet_NaN());
  for (size_t layer = 0; layer < num_layers_; ++layer) {
    for (size_t row = length; row < length_; ++row) {
      StoreKv({.kv = Layer(layer),
               .first_row = row,
               .rows = 1,
               .keys = nans.data(),
               .keys_stride = nans.size(),
               .values = nans.data(),
               .values_stride = nans.size()});
    }
  }
#endif
  length_ = length;
}

void ContiguousKvCache::Grow(size_t rows) {
  if (rows > capacity_ - length_) Die("Grow by", rows, capacity_ - length_);
  length_ += rows;
}

KvLayer ContiguousKvCache::Layer(size_t layer) const {
  const size_t layer_floats = num_kv_heads_ * num_blocks_ * 2 * kKeyBlock * head_size_;
  return {.data = data_ + layer * layer_floats,
          .num_kv_heads = num_kv_heads_,
          .num_blocks = num_blocks_,
          .head_size = head_size_};
}

}  // namespace tandem
