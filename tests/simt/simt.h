// CUDA's execution model on a host. The source of a kernel runs in tests without a GPU. Blocks run
// one after the other, and the threads of a block run as fibers (crew.h) that switch only at
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

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <type_traits>

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

// Where a thread is in its block, and in its warp.
struct Place {
  Index thread;
  int lane = 0;
};
extern thread_local constinit const Place* place;  // the running thread's; null outside of Run
[[noreturn]] void FailOutsideOfAKernel();

// Returns indices of the running thread. PRECOND: called within Run.
inline const Index& ThreadIndex() {
  if (place == nullptr) FailOutsideOfAKernel();
  return place->thread;
}
const Index& BlockIndex();
const Extent& BlockExtent();
const Extent& GridExtent();
void* SharedMemory();

// __syncthreads: returns when all threads of the block that have not ended are here.
void SyncThreads();
// Does the same. Returns the number of threads with a true `predicate`.
int SyncThreadsCount(bool predicate);

// Returns the lane of the running thread in its warp. PRECOND: as for ThreadIndex.
inline int Lane() {
  if (place == nullptr) FailOutsideOfAKernel();
  return place->lane;
}
// A warp operation: every lane of `mask` brings `value`, and all lanes see all values. Returns the
// value of the lane `source`, or this lane's own value if the source is not in the mask.
uint64_t Exchange(uint32_t mask, uint64_t value, int source);
// Returns the bits of the lanes of `mask` with a true `predicate`.
uint32_t Ballot(uint32_t mask, bool predicate);

// Brings the values of a whole warp together. The last lane to come calls `combine` with the values
// in the order of the lanes, and each lane returns what that left in its place.
uint64_t Combine(uint64_t value, void (*combine)(uint64_t* values));

// Reduces over a whole warp as shuffles would: each lane combines its value with that of the lane
// 16, 8, 4, 2 and 1 away. The combining function must have no state.
template <typename T, typename Function>
T Butterfly(T value, const Function& /*combine*/) {
  static_assert(sizeof(T) <= sizeof(uint64_t) && std::is_empty_v<Function>);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = Combine(bits, [](uint64_t* all) {
    T values[kWarpSize];
    for (unsigned i = 0; i < kWarpSize; ++i) std::memcpy(&values[i], &all[i], sizeof(T));
    for (unsigned lanes = kWarpSize / 2; lanes > 0; lanes /= 2) {
      T next[kWarpSize];
      for (unsigned i = 0; i < kWarpSize; ++i) next[i] = Function()(values[i], values[i ^ lanes]);
      std::copy(std::begin(next), std::end(next), std::begin(values));
    }
    for (unsigned i = 0; i < kWarpSize; ++i) std::memcpy(&all[i], &values[i], sizeof(T));
  });
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

// Computes mma.sync.m16n8k16 for a whole warp, with BF16 factors and F32 sums.
// kernels/device/matrix_units.cuh says which values each lane has. The sixteen products are summed
// in double and rounded once. This order differs from that of every GPU, and is always the same.
void MultiplyFragments(const uint32_t (&a)[4], const uint32_t (&b)[2], float (&d)[4]);

// Does what ldmatrix.sync.m8n8.x4 does for a whole warp (kernels/device/matrix_units.cuh).
void LoadMatrices(const void* row, bool transposed, uint32_t (&words)[4]);

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
