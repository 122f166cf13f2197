// Copies from a device's memory to a thread block's shared memory that go on while the thread does
// other work: cp.async (PTX ISA 7.0, compute capability 8.0).
#ifndef TANDEM_KERNELS_DEVICE_ASYNC_COPY_CUH_
#define TANDEM_KERNELS_DEVICE_ASYNC_COPY_CUH_

#include <cuda_runtime.h>

#include <cstdint>

namespace tandem {

// Begins to copy 16 bytes past the first-level cache. Both pointers are 16-byte aligned. If `there`
// is false, nothing is read, and the 16 bytes become 0.
__device__ inline void CopyAsync16(void* shared, const void* from, bool there) {
#ifdef TANDEM_SIMT
  simt::CopyLater(shared, there ? from : nullptr, 16);
#else
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(there ? 16 : 0)
               : "memory");
#endif
}

// Ends a group of copies: those that this thread began since its last group. A group may be empty.
__device__ inline void EndCopyGroup() {
#ifdef TANDEM_SIMT
  simt::EndCopyGroup();
#else
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most kLeft of this thread's groups are not done. Only this thread sees their bytes
// until the next barrier of its warp or block.
template <int kLeft>
__device__ inline void WaitForCopyGroups() {
#ifdef TANDEM_SIMT
  simt::WaitForCopyGroups(kLeft);
#else
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
#endif
}

}  // namespace tandem

#endif  // TANDEM_KERNELS_DEVICE_ASYNC_COPY_CUH_
