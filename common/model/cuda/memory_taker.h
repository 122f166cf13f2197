// How parts of a model say which device memory they need.
#ifndef TANDEM_COMMON_MODEL_CUDA_MEMORY_TAKER_H_
#define TANDEM_COMMON_MODEL_CUDA_MEMORY_TAKER_H_

#include <cstddef>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace tandem {

// Each part has a function LayOut, which calls this object for each of its arrays. A first walk
// over the parts adds the sizes up, and a second one takes the arrays.
class MemoryTaker {
 public:
  // Takes `bytes`, sets `piece`, and names the array in errors. A walk that only counts leaves
  // `piece` null, and the part's pointer as it is.
  using TakeBytes = absl::FunctionRef<absl::Status(void** piece, size_t bytes, const char* what)>;

  explicit MemoryTaker(TakeBytes take) : take_(take) {}

  template <typename T>
  absl::Status operator()(T** array, size_t count, const char* what) const {
    void* piece = nullptr;
    absl::Status status = take_(&piece, count * sizeof(T), what);
    if (piece != nullptr) *array = static_cast<T*>(piece);
    return status;
  }

 private:
  TakeBytes take_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CUDA_MEMORY_TAKER_H_
