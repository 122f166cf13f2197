// The memory that holds the pages of a KV pool, and the operations on pages.
#ifndef TANDEM_COMMON_MODEL_KV_KV_MEMORY_H_
#define TANDEM_COMMON_MODEL_KV_KV_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/model_description.h"
#include "kernels/attention.h"

namespace tandem {

// Number of cache rows in a page. A page is one block of attention, so that no kernel has to know
// where a page ends (docs/adr/0010-pages-and-prefix-cache.md).
inline constexpr size_t kPageRows = kKeyBlock;

// A row of a page that is copied to another row.
struct KvRowMove {
  size_t from_page = 0;
  size_t from_row = 0;
  size_t to_page = 0;
  size_t to_row = 0;
};

// Holds the pages [0, num_pages), which have one size. Not thread-safe.
class KvMemory {
 public:
  virtual ~KvMemory() = default;

  virtual size_t num_pages() const = 0;
  virtual uint64_t page_bytes() const = 0;
  // Returns the address of page `index` on the host, or null if the processor cannot reach the
  // page.
  virtual float* HostPage(size_t index) const = 0;
  // Copies all rows of a page. All errors come from the device.
  virtual absl::Status Copy(size_t from, size_t to) = 0;
  // Copies rows, one after the other. All errors come from the device.
  virtual absl::Status CopyRows(std::span<const KvRowMove> moves) = 0;
  // Overwrites the rows [begin, end) with NaN in debug builds, so that a read of a row that was
  // given back shows in the results.
  virtual void Spoil(size_t index, size_t begin, size_t end) = 0;
};

// Pages of F32 values on the host, with the layout of KvLayer. The address space is reserved as a
// whole. A page is touched when it is first used.
class HostKvMemory final : public KvMemory {
 public:
  static uint64_t PageBytes(const ModelDescription& model);
  // Returns the bytes of the whole pages that `rows` rows of one sequence take.
  static uint64_t Bytes(const ModelDescription& model, size_t rows);

  // Reserves all pages that fit into `bytes`. INVALID_ARGUMENT: not one page fits.
  // RESOURCE_EXHAUSTED: the address space has no room.
  static absl::StatusOr<std::unique_ptr<HostKvMemory>> Create(const ModelDescription& model,
                                                              uint64_t bytes);
  ~HostKvMemory() override;
  HostKvMemory(const HostKvMemory&) = delete;
  HostKvMemory& operator=(const HostKvMemory&) = delete;

  size_t num_pages() const override { return reserved_bytes_ / page_bytes(); }
  uint64_t page_bytes() const override { return page_floats_ * sizeof(float); }
  float* HostPage(size_t index) const override { return data_ + index * page_floats_; }
  absl::Status Copy(size_t from, size_t to) override;
  absl::Status CopyRows(std::span<const KvRowMove> moves) override;
  void Spoil(size_t index, size_t begin, size_t end) override;

 private:
  HostKvMemory(const ModelDescription& model, float* data, uint64_t reserved_bytes);

  // Returns a layer of the page at `page`, which must outlive the result.
  KvLayer Layer(float* const* page, size_t layer) const {
    return {.pages = page,
            .page_offset = layer * (page_floats_ / num_layers_),
            .num_kv_heads = num_kv_heads_,
            .head_size = head_size_};
  }

  // The sizes of a page.
  size_t num_layers_;
  size_t num_kv_heads_;
  size_t head_size_;
  size_t page_floats_;
  float* data_;
  uint64_t reserved_bytes_;
};

// Returns INVALID_ARGUMENT for the operator: a pool of `bytes` does not hold one page.
absl::Status HoldsNoPage(uint64_t bytes, uint64_t page_bytes);

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_KV_KV_MEMORY_H_
