#include "common/model/cuda/cuda_kv_memory.h"

#include "common/status.h"

namespace tandem {

DeviceKv CudaKvMemory::Layer(size_t layer) const {
  return {.pool = pages_.layers,
          .dtype = dtype_,
          .page_stride = shape_.layers_floats(),
          .layer_offset = layer * shape_.layer_floats(),
          .num_kv_heads = shape_.num_kv_heads,
          .head_size = shape_.head_size};
}

absl::Status CudaKvMemory::ClearRow(size_t layer, size_t page, size_t row) {
  char* const first = Row(page, row) + layer * planes_of_layer() * kPageRows * row_bytes();
  return stream_->FillRows(first, kPageRows * row_bytes(), 0, row_bytes(), planes_of_layer());
}

absl::Status CudaKvMemory::Copy(size_t from, size_t to) {
  TANDEM_RETURN_IF_ERROR(stream_->Copy(Row(to, 0), Row(from, 0), LayersBytes(shape_, dtype_)));
  if (shape_.feature_floats == 0) return absl::OkStatus();
  return stream_->Copy(Feature(to, 0), Feature(from, 0), FeatureBytes(shape_));
}

absl::Status CudaKvMemory::CopyRows(std::span<const KvRowMove> moves) {
  for (const KvRowMove& move : moves) {
    TANDEM_RETURN_IF_ERROR(stream_->CopyRows(Row(move.to_page, move.to_row),
                                             Row(move.from_page, move.from_row),
                                             kPageRows * row_bytes(), row_bytes(), num_planes()));
    if (shape_.feature_floats == 0) continue;
    TANDEM_RETURN_IF_ERROR(stream_->Copy(Feature(move.to_page, move.to_row),
                                         Feature(move.from_page, move.from_row),
                                         shape_.feature_floats * sizeof(float)));
  }
  return absl::OkStatus();
}

void CudaKvMemory::Spoil(size_t index, size_t begin, size_t end) {
  if (!spoils_ || begin >= end) return;
  // A value with all bits set is NaN in each type. The next pass reports an error of a lost device.
  const size_t rows = end - begin;
  stream_
      ->FillRows(Row(index, begin), kPageRows * row_bytes(), 0xFF, rows * row_bytes(), num_planes())
      .IgnoreError();
  if (shape_.feature_floats == 0) return;
  const size_t bytes = rows * shape_.feature_floats * sizeof(float);
  stream_->FillRows(Feature(index, begin), bytes, 0xFF, bytes, 1).IgnoreError();
}

}  // namespace tandem
