#include "common/model/scratch_rows.h"

#include <new>

namespace tandem {

void ScratchRows::Resize(size_t rows, size_t columns) {
  constexpr size_t kLine = 16;  // floats
  stride_ = (columns + kLine - 1) / kLine * kLine + kLine;
  if (rows * stride_ <= capacity_) return;
  capacity_ = rows * stride_;
  data_.reset(static_cast<float*>(std::aligned_alloc(64, capacity_ * sizeof(float))));
  if (data_ == nullptr) throw std::bad_alloc();
}

}  // namespace tandem
