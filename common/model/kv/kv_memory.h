// Where the pages of a KV pool lie, and what can be done to them there.
#ifndef TANDEM_COMMON_MODEL_KV_KV_MEMORY_H_
#define TANDEM_COMMON_MODEL_KV_KV_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/model_description.h"
#include "kernels/attention.h"

namespace tandem {

// Cache rows of a page: one block of attention, so that no kernel sees where a page ends
// (docs/adr/0010-pages-and-prefix-cache.md).
inline constexpr size_t kPageRows = kKeyBlock;

// Pages [0, num_pages) of one size. Not thread-safe.
class KvMemory {
 public:
  virtual ~KvMemory() = default;

  virtual size_t num_pages() const = 0;
  virtual uint64_t page_bytes() const = 0;
  // Page `index` where the processor can reach it; null where it cannot.
  virtual float* HostPage(size_t index) const = 0;
  // Copies all rows. An error is the device's.
  virtual absl::Status Copy(size_t from, size_t to) = 0;
  // In debug builds, overwrites the rows [begin, end) with NaN, so that whoever reads a row that was
  // given back shows it.
  virtual void Spoil(size_t index, size_t begin, size_t end) = 0;
};

// F32, laid out as KvLayer says. The address space is reserved as a whole; a page of it is touched
// when it is first used.
class HostKvMemory final : public KvMemory {
 public:
  static uint64_t PageBytes(const ModelDescription& model);
  // What `rows` rows of one sequence take, in whole pages.
  static uint64_t Bytes(const ModelDescription& model, size_t rows);

  // As many pages as fit into `bytes`. INVALID_ARGUMENT when that is none, RESOURCE_EXHAUSTED when
  // the address space has no room.
  static absl::StatusOr<std::unique_ptr<HostKvMemory>> Create(const ModelDescription& model,
                                                              uint64_t bytes);
  ~HostKvMemory() override;
  HostKvMemory(const HostKvMemory&) = delete;
  HostKvMemory& operator=(const HostKvMemory&) = delete;

  size_t num_pages() const override { return reserved_bytes_ / page_bytes(); }
  uint64_t page_bytes() const override { return page_floats_ * sizeof(float); }
  float* HostPage(size_t index) const override { return data_ + index * page_floats_; }
  absl::Status Copy(size_t from, size_t to) override;
  void Spoil(size_t index, size_t begin, size_t end) override;

 private:
  HostKvMemory(const ModelDescription& model, float* data, uint64_t reserved_bytes);

  // Of a page; Spoil alone looks at the first three.
  [[maybe_unused]] size_t num_layers_;
  [[maybe_unused]] size_t num_kv_heads_;
  [[maybe_unused]] size_t head_size_;
  size_t page_floats_;
  float* data_;
  uint64_t reserved_bytes_;
};

// A pool of `bytes` holds not one page. INVALID_ARGUMENT, for the operator.
absl::Status HoldsNoPage(uint64_t bytes, uint64_t page_bytes);

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_KV_KV_MEMORY_H_
