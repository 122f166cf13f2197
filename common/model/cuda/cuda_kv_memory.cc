#include "common/model/cuda/cuda_kv_memory.h"

#include "common/status.h"

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

absl::Status CudaKvMemory::CopyRows(std::span<const KvRowMove> moves) {
  for (const KvRowMove& move : moves) {
    TANDEM_RETURN_IF_ERROR(stream_->CopyRows(Row(move.to_page, move.to_row),
                                             Row(move.from_page, move.from_row),
                                             kPageRows * row_bytes(), row_bytes(), num_planes()));
  }
  return absl::OkStatus();
}

void CudaKvMemory::Spoil(size_t index, size_t begin, size_t end) {
  if (!spoils_ || begin >= end) return;
  // A value with all bits set is NaN in each type. The next pass reports an error of a lost device.
  stream_
      ->FillRows(Row(index, begin), kPageRows * row_bytes(), 0xFF, (end - begin) * row_bytes(),
                 num_planes())
      .IgnoreError();
}

}  // namespace tandem
