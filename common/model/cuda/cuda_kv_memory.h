// Pages of a KV pool in device memory.
#ifndef TANDEM_COMMON_MODEL_CUDA_CUDA_KV_MEMORY_H_
#define TANDEM_COMMON_MODEL_CUDA_CUDA_KV_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "common/model/kv/kv_memory.h"
#include "kernels/attention.h"
#include "kernels/device/device_stream.h"
#include "kernels/dtype.h"

namespace tandem {

// Keys and values have the layout of DeviceKv (kernels/attention.h). The features of all pages are
// F32 and lie in an array of their own. Operations on pages are enqueued on the model's stream,
// between its passes.
class CudaKvMemory final : public KvMemory {
 public:
  // Device memory that must outlive this object.
  struct Pages {
    size_t count = 0;
    void* layers = nullptr;     // [count * LayersBytes]
    float* features = nullptr;  // [count * kPageRows, feature_floats]; null: there are none
  };

  // Bytes of a page's keys and values, of its features, and of both.
  static uint64_t LayersBytes(const KvShape& shape, DType dtype) {
    return shape.layers_floats() * SizeOf(dtype);
  }
  static uint64_t FeatureBytes(const KvShape& shape) {
    return kPageRows * shape.feature_floats * sizeof(float);
  }
  static uint64_t PageBytes(const KvShape& shape, DType dtype) {
    return LayersBytes(shape, dtype) + FeatureBytes(shape);
  }

  //   stream  the model's stream; must outlive this object
  //   spoils  whether rows that were given back become NaN, as on the CPU in debug builds
  CudaKvMemory(const KvShape& shape, DType dtype, const Pages& pages, const DeviceStream* stream,
               bool spoils)
      : shape_(shape), dtype_(dtype), pages_(pages), stream_(stream), spoils_(spoils) {}

  // Returns the keys and values of a layer in the form that the kernels take.
  DeviceKv Layer(size_t layer) const;
  // Returns the features of all rows of all pages: [num_pages * kPageRows, feature_floats].
  float* features() const { return pages_.features; }
  // Returns how many floats the features of two rows are apart. Those of a drafter that reads less
  // than there is room for begin there, and do not fill it.
  size_t feature_stride() const { return shape_.feature_floats; }
  // Sets the keys and values of one layer to zero in a row of a page.
  absl::Status ClearRow(size_t layer, size_t page, size_t row);

  size_t num_pages() const override { return pages_.count; }
  uint64_t page_bytes() const override { return PageBytes(shape_, dtype_); }
  float* HostPage(size_t) const override { return nullptr; }
  absl::Status Copy(size_t from, size_t to) override;
  absl::Status CopyRows(std::span<const KvRowMove> moves) override;
  void Spoil(size_t index, size_t begin, size_t end) override;

 private:
  // The keys and the values of each layer and KV head have kPageRows rows on a page, one row after
  // the other.
  size_t row_bytes() const { return shape_.head_size * SizeOf(dtype_); }
  size_t num_planes() const { return shape_.num_layers * planes_of_layer(); }
  size_t planes_of_layer() const { return 2 * shape_.num_kv_heads; }
  // Returns a row of the page's first plane. The other planes follow kPageRows rows apart.
  char* Row(size_t page, size_t row) const {
    return static_cast<char*>(pages_.layers) + page * LayersBytes(shape_, dtype_) +
           row * row_bytes();
  }
  float* Feature(size_t page, size_t row) const {
    return pages_.features + (page * kPageRows + row) * shape_.feature_floats;
  }

  KvShape shape_;
  DType dtype_;
  Pages pages_;
  const DeviceStream* stream_;
  bool spoils_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CUDA_CUDA_KV_MEMORY_H_
