// Memory for the rows of one pass.
#ifndef TANDEM_COMMON_MODEL_SCRATCH_ROWS_H_
#define TANDEM_COMMON_MODEL_SCRATCH_ROWS_H_

#include <cstddef>
#include <cstdlib>
#include <memory>

namespace tandem {

// A row-major matrix that only grows, and loses its content when it does. Rows begin on cache
// lines, and not all on the same cache set.
class ScratchRows {
 public:
  void Resize(size_t rows, size_t columns);
  float* row(size_t i) { return data_.get() + i * stride_; }
  const float* row(size_t i) const { return data_.get() + i * stride_; }
  size_t stride() const { return stride_; }

 private:
  struct Free {
    void operator()(float* data) const { std::free(data); }
  };

  std::unique_ptr<float, Free> data_;
  size_t capacity_ = 0;
  size_t stride_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_SCRATCH_ROWS_H_
