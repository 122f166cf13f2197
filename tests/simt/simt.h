// CUDA's execution model on a host. The source of a kernel runs in tests without a GPU. Blocks run
// one after the other, and the threads of a block run as fibers (Boost.Context) that switch only at
// barriers and warp operations.
//
// The shim detects errors that a GPU would not report: a barrier or warp operation that some thread
// never reaches; a lane that names a mask without itself; shared memory that is read before it is
// written (each block's memory begins as NaN) or past its end (under AddressSanitizer); and code
// that relies on the order in which warps run (a seed decides it). The shim cannot detect races
// between threads that no barrier separates, or effects of caches, and it says nothing about speed.
//
// Kernel sources include CUDA's own header names; tests/simt/include has them.
#ifndef TANDEM_TESTS_SIMT_SIMT_H_
#define TANDEM_TESTS_SIMT_SIMT_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

namespace simt {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};
struct Extent {
  unsigned x = 1, y = 1, z = 1;
  // Like CUDA's dim3: a number is an x.
  Extent(unsigned in_x = 1, unsigned in_y = 1,
         unsigned in_z = 1)  // NOLINT(google-explicit-constructor)
      : x(in_x), y(in_y), z(in_z) {}
  size_t count() const { return size_t{x} * y * z; }
};

inline constexpr unsigned kWarpSize = 32;

// Runs `kernel` once for each thread of each block. Within a block, threads run in an order that
// `seed` decides. Aborts with a message if the threads of a block wait for each other for ever.
//   shared_bytes  dynamic shared memory of a block, NaN at first
void Run(Extent grid, Extent block, size_t shared_bytes, uint64_t seed,
         const std::function<void()>& kernel);

// Returns indices of the running thread. PRECOND: called within Run.
const Index& ThreadIndex();
const Index& BlockIndex();
const Extent& BlockExtent();
const Extent& GridExtent();
void* SharedMemory();

// __syncthreads: returns when all threads of the block that have not ended are here.
void SyncThreads();
// Does the same. Returns the number of threads with a true `predicate`.
int SyncThreadsCount(bool predicate);

// Returns the lane of the running thread in its warp. PRECOND: as for ThreadIndex.
int Lane();
// A warp operation: every lane of `mask` brings `value`, and all lanes see all values. Returns the
// value of the lane `source`, or this lane's own value if the source is not in the mask.
uint64_t Exchange(uint32_t mask, uint64_t value, int source);
// Returns the bits of the lanes of `mask` with a true `predicate`.
uint32_t Ballot(uint32_t mask, bool predicate);

// Computes mma.sync.m16n8k16 for a whole warp, with BF16 factors and F32 sums.
// kernels/device/matrix_units.cuh says which values each lane has. The sixteen products are summed
// in double and rounded once. This order differs from that of every GPU, and is always the same.
void MultiplyFragments(const uint32_t (&a)[4], const uint32_t (&b)[2], float (&d)[4]);

// Copies that go on while the thread does other work (kernels/device/async_copy.cuh). A block does
// all of them as late as a GPU may, when the thread waits for their group, or all of them at once.
// The seed decides. A kernel that reads before it waits sees what was there before, and one that
// copies to memory that is still being read spoils it. A null `from` writes zeros.
void CopyLater(void* to, const void* from, size_t bytes);
void EndCopyGroup();
// Does the copies of all ended groups except the last `left` ones.
void WaitForCopyGroups(size_t left);

// `source` maps a lane to the lane whose value it gets.
template <typename T, typename Source>
T ShuffleFrom(uint32_t mask, T value, const Source& source) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = Exchange(mask, bits, source(Lane()));
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace simt

#endif  // TANDEM_TESTS_SIMT_SIMT_H_
