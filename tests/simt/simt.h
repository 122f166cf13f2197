// CUDA's execution model on a host, so that the very source of a kernel runs in tests without a
// GPU: blocks one after the other, the threads of a block as fibers (Boost.Context) that switch at
// barriers and warp operations only.
//
// What it sees that a GPU would not say: a barrier or warp operation that some thread never
// reaches, a lane that names a mask without itself, shared memory that is read before it is written
// (each block's begins as NaN) or past its end (under AddressSanitizer), code that relies on the
// order in which warps run (a seed decides it). What it cannot see: races between threads that no
// barrier separates, caches, and how fast anything is.
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
  // As CUDA's dim3: a number is an x.
  Extent(unsigned in_x = 1, unsigned in_y = 1,
         unsigned in_z = 1)  // NOLINT(google-explicit-constructor)
      : x(in_x), y(in_y), z(in_z) {}
  size_t count() const { return size_t{x} * y * z; }
};

inline constexpr unsigned kWarpSize = 32;

// Runs `kernel` once for each thread of each block. Within a block, threads run in an order that
// `seed` decides. Aborts with a message when the threads of a block wait for each other for ever.
//   shared_bytes  dynamic shared memory of a block, NaN at first
void Run(Extent grid, Extent block, size_t shared_bytes, uint64_t seed,
         const std::function<void()>& kernel);

// Indices of the thread that runs. PRECOND: within Run.
const Index& ThreadIndex();
const Index& BlockIndex();
const Extent& BlockExtent();
const Extent& GridExtent();
void* SharedMemory();

// __syncthreads: returns when all threads of the block that have not ended are here.
void SyncThreads();
// The same; returns how many threads came with `predicate`.
int SyncThreadsCount(bool predicate);

// A warp operation: every lane of `mask` brings `value`, all see everyone's. Returns the value of
// `source(lane)`, this lane's own where the source is not in the mask.
uint64_t Exchange(uint32_t mask, uint64_t value, const std::function<int(int)>& source);
// Bits of the lanes of `mask` that came with `predicate`.
uint32_t Ballot(uint32_t mask, bool predicate);

// mma.sync.m16n8k16 of a whole warp, BF16 factors and F32 sums: kernels/device/matrix_units.cuh
// says which lane has what. The sixteen products are summed in double and rounded once: another
// order than any GPU's, and one order always.
void MultiplyFragments(const uint32_t (&a)[4], const uint32_t (&b)[2], float (&d)[4]);

template <typename T>
T ShuffleFrom(uint32_t mask, T value, const std::function<int(int)>& source) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = Exchange(mask, bits, source);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace simt

#endif  // TANDEM_TESTS_SIMT_SIMT_H_
