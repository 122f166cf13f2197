#include "common/model/cuda/cuda_kv_memory.h"

namespace tandem {

uint64_t CudaKvMemory::PageBytes(const ModelDescription& model, DType dtype) {
  return 2 * kPageRows * model.num_layers * model.attention.num_kv_heads *
         model.attention.head_size * SizeOf(dtype);
}

CudaKvMemory::CudaKvMemory(const ModelDescription& model, DType dtype, void* data, size_t num_pages,
                           const DeviceStream* stream, bool spoils)
    : dtype_(dtype),
      num_layers_(model.num_layers),
      num_kv_heads_(model.attention.num_kv_heads),
      head_size_(model.attention.head_size),
      page_bytes_(PageBytes(model, dtype)),
      data_(data),
      num_pages_(num_pages),
      stream_(stream),
      spoils_(spoils) {}

DeviceKv CudaKvMemory::Layer(size_t layer) const {
  return {.pool = data_,
          .dtype = dtype_,
          .page_stride = page_bytes_ / SizeOf(dtype_),
          .layer_offset = layer * 2 * num_kv_heads_ * kPageRows * head_size_,
          .num_kv_heads = num_kv_heads_,
          .head_size = head_size_};
}

absl::Status CudaKvMemory::Copy(size_t from, size_t to) {
  return stream_->Copy(Page(to), Page(from), page_bytes_);
}

void CudaKvMemory::Spoil(size_t index, size_t begin, size_t end) {
  if (!spoils_ || begin >= end) return;
  // The keys and the values of each layer and head have kPageRows rows. A value with all bits set
  // is NaN in each type.
  const size_t row_bytes = head_size_ * SizeOf(dtype_);
  // The next pass reports an error of a lost device.
  stream_
      ->FillRows(Page(index) + begin * row_bytes, kPageRows * row_bytes, 0xFF,
                 (end - begin) * row_bytes, 2 * num_layers_ * num_kv_heads_)
      .IgnoreError();
}

}  // namespace tandem
