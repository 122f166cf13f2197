// Pages of a KV pool in device memory.
#ifndef TANDEM_COMMON_MODEL_CUDA_CUDA_KV_MEMORY_H_
#define TANDEM_COMMON_MODEL_CUDA_CUDA_KV_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "common/model/kv/kv_memory.h"
#include "common/model/model_description.h"
#include "kernels/attention.h"
#include "kernels/device/device_stream.h"
#include "kernels/dtype.h"

namespace tandem {

// Pages have the layout of DeviceKv (kernels/attention.h). Operations on pages are enqueued on the
// model's stream, between its passes.
class CudaKvMemory final : public KvMemory {
 public:
  static uint64_t PageBytes(const ModelDescription& model, DType dtype);

  //   data    [num_pages * PageBytes]  in device memory; must outlive this object
  //   stream  the model's stream; must outlive this object
  //   spoils  whether rows that were given back become NaN, as on the CPU in debug builds
  CudaKvMemory(const ModelDescription& model, DType dtype, void* data, size_t num_pages,
               const DeviceStream* stream, bool spoils);

  // Returns the keys and values of a layer in the form that the kernels take.
  DeviceKv Layer(size_t layer) const;

  size_t num_pages() const override { return num_pages_; }
  uint64_t page_bytes() const override { return page_bytes_; }
  float* HostPage(size_t) const override { return nullptr; }
  absl::Status Copy(size_t from, size_t to) override;
  absl::Status CopyRows(std::span<const KvRowMove> moves) override;
  void Spoil(size_t index, size_t begin, size_t end) override;

 private:
  // The keys and the values of each layer and KV head have kPageRows rows on a page, one row after
  // the other.
  size_t row_bytes() const { return head_size_ * SizeOf(dtype_); }
  size_t num_planes() const { return 2 * num_layers_ * num_kv_heads_; }
  char* Page(size_t index) const { return static_cast<char*>(data_) + index * page_bytes_; }
  // Returns a row of the page's first plane. The other planes follow kPageRows rows apart.
  char* Row(size_t index, size_t row) const { return Page(index) + row * row_bytes(); }

  DType dtype_;
  size_t num_layers_;
  size_t num_kv_heads_;
  size_t head_size_;
  uint64_t page_bytes_;
  void* data_;
  size_t num_pages_;
  const DeviceStream* stream_;
  bool spoils_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CUDA_CUDA_KV_MEMORY_H_
