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

// What a page holds for each of its rows: keys and values of layers, and then a feature.
struct KvShape {
  KvShape() = default;
  // The keys and values of a model, without a feature.
  KvShape(const ModelDescription& model)
      : num_layers(model.num_layers),
        num_kv_heads(model.attention.num_kv_heads),
        head_size(model.attention.head_size) {}

  size_t num_layers = 0;  // those of the model, and then those of a drafter beside it
  size_t num_kv_heads = 0;
  size_t head_size = 0;
  size_t feature_floats = 0;  // what a drafter reads of a row of the model; 0: nothing

  // Numbers of floats on a page: one layer, all layers, the whole page.
  size_t layer_floats() const { return 2 * num_kv_heads * kPageRows * head_size; }
  size_t layers_floats() const { return num_layers * layer_floats(); }
  size_t page_floats() const { return layers_floats() + kPageRows * feature_floats; }
};

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

// Pages of F32 values on the host, with the layout of KvLayer. The features of a page lie after its
// layers: [kPageRows, feature_floats]. The address space is reserved as a whole. A page is touched
// when it is first used.
class HostKvMemory final : public KvMemory {
 public:
  static uint64_t PageBytes(const KvShape& shape) { return shape.page_floats() * sizeof(float); }
  // Returns the bytes of the whole pages that `rows` rows of one sequence take.
  static uint64_t Bytes(const KvShape& shape, size_t rows);

  // Reserves all pages that fit into `bytes`. INVALID_ARGUMENT: not one page fits.
  // RESOURCE_EXHAUSTED: the address space has no room.
  static absl::StatusOr<std::unique_ptr<HostKvMemory>> Create(const KvShape& shape, uint64_t bytes);
  ~HostKvMemory() override;
  HostKvMemory(const HostKvMemory&) = delete;
  HostKvMemory& operator=(const HostKvMemory&) = delete;

  size_t num_pages() const override { return reserved_bytes_ / page_bytes(); }
  uint64_t page_bytes() const override { return PageBytes(shape_); }
  float* HostPage(size_t index) const override { return data_ + index * shape_.page_floats(); }
  absl::Status Copy(size_t from, size_t to) override;
  absl::Status CopyRows(std::span<const KvRowMove> moves) override;
  void Spoil(size_t index, size_t begin, size_t end) override;

 private:
  HostKvMemory(const KvShape& shape, float* data, uint64_t reserved_bytes)
      : shape_(shape), data_(data), reserved_bytes_(reserved_bytes) {}

  // Returns a layer of the page at `page`, which must outlive the result.
  KvLayer Layer(float* const* page, size_t layer) const {
    return {.pages = page,
            .page_offset = layer * shape_.layer_floats(),
            .num_kv_heads = shape_.num_kv_heads,
            .head_size = shape_.head_size};
  }
  // Returns the feature of a row of the page at `page`.
  float* Feature(float* page, size_t row) const {
    return page + shape_.layers_floats() + row * shape_.feature_floats;
  }

  KvShape shape_;
  float* data_;
  uint64_t reserved_bytes_;
};

// Returns INVALID_ARGUMENT for the operator: a pool of `bytes` does not hold one page.
absl::Status HoldsNoPage(uint64_t bytes, uint64_t page_bytes);

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_KV_KV_MEMORY_H_
