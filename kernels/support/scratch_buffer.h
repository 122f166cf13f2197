// Scratch memory of a kernel.
#ifndef TANDEM_KERNELS_SUPPORT_SCRATCH_BUFFER_H_
#define TANDEM_KERNELS_SUPPORT_SCRATCH_BUFFER_H_

#include <cstddef>

#include "hwy/aligned_allocator.h"

namespace tandem {

// An aligned buffer that grows and never shrinks, so that the steady state allocates nothing.
// Growing loses the contents.
template <class T>
class ScratchBuffer {
 public:
  T* Reserve(size_t count) {
    if (count > capacity_) {
      elements_ = hwy::AllocateAligned<T>(count);
      capacity_ = count;
    }
    return elements_.get();
  }

 private:
  hwy::AlignedFreeUniquePtr<T[]> elements_;
  size_t capacity_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_KERNELS_SUPPORT_SCRATCH_BUFFER_H_
