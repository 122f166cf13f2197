// The product on the CPU. Vector lanes run along k: lane i of an accumulator sums the terms of
// every L-th k (L lanes), in ascending order, and the lanes are then added in one tree. Both paths
// below keep this order for each element, so its bits do not depend on the path, on its tile, or on
// the other elements.
//
//   few rows  Weights are read from memory once. They are widened in registers, for each tile of up
//             to 6 rows of x. Very few rows of x may take one weight row after the other. "Few" is
//             up to 96 rows with AVX-512, and up to 24 elsewhere.
//   blocked   A panel of weights is widened to F32 in the L2 cache and multiplied with about 128
//             rows of x.
//
// Both paths go over k in pieces that fit in a cache. Accumulators are stored after a piece and
// loaded unchanged for the next one, so the pieces do not change the order.
//
// First, x is copied, with zero padding, into the order in which the kernels read it:
//   [row tile][half step][rows of the tile][L]   f32
// A step is 2L consecutive k. Its halves are the first L and the last L of them. For BF16 its
// halves are the even and the odd k, because 2L loaded weights are then widened by one shift and
// one AND.
//
// With RoundsActivations(), x is rounded and BF16 weights are multiplied as they are:
//   [row tile][step][rows of the tile][L][2]     bf16
// Lane i of an accumulator then sums the terms of every i-th pair of k. Of a pair, the term of the
// odd k is added first. Both additions round to nearest even, and numbers below 2^-126 count as
// zero (VDPBF16PS; Intel SDM, volume 2).

#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/amx/matmul_amx.h"
#include "kernels/amx/matrix_units.h"
#include "kernels/matmul.h"
#include "kernels/support/activation_precision.h"
#include "kernels/support/product_jobs.h"
#include "kernels/support/read_order.h"
#include "kernels/support/scratch_buffer.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul_cpu.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.
#include "hwy/highway.h"

#ifndef TANDEM_KERNELS_MATMUL_CPU_ONCE
#define TANDEM_KERNELS_MATMUL_CPU_ONCE
namespace tandem {
namespace {

// Few rows: the number of tiles of weight rows that meet the same slice of x.
constexpr size_t kGroupStrips = 8;
// Weights that are read row after row are prefetched into L1 this far ahead.
constexpr size_t kBytesAhead = 8 << 10;
// What __builtin_prefetch calls L1.
constexpr int kToL1 = 3;

// Blocked: the numbers of rows of x, weight rows, and k that are in the L2 cache together. There x
// takes 0.5 MiB, the panel 0.25 MiB and the accumulators 0.5 MiB. A row tile of x and a strip of
// the panel fit in L1.
constexpr size_t kPanelXRows = 128;
constexpr size_t kPanelRows = 64;
constexpr size_t kPanelDepth = 1024;
// Packing fewer floats of x than this is not worth waking a helper.
constexpr size_t kMinParallelPack = 32 << 10;

// Size of a core's L1 data cache. Where the system does not state it, the smallest usual size.
size_t L1Bytes() {
  static const size_t bytes = [] {
    const long size = sysconf(_SC_LEVEL1_DCACHE_SIZE);  // NOLINT(google-runtime-int): its own type
    return size > 0 ? static_cast<size_t>(size) : size_t{32} << 10;
  }();
  return bytes;
}

// Scratch memory of a thread: a caller's packed x, and every thread's panel and accumulators.
struct Scratch {
  ScratchBuffer<float> packed_x;
  ScratchBuffer<float> panel;
  ScratchBuffer<float> carried;
  std::vector<ProductJob> jobs;
};

Scratch& ThreadScratch() {
  thread_local Scratch scratch;
  return scratch;
}

}  // namespace
}  // namespace tandem
#endif  // TANDEM_KERNELS_MATMUL_CPU_ONCE

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using U32 = hn::ScalableTag<uint32_t>;
using Vec = hn::Vec<F32>;
constexpr F32 kF32;
constexpr size_t kLanes = HWY_LANES(float);
constexpr size_t kStep = 2 * kLanes;

// A register tile is up to `rows` rows of x by `cols` rows of W. Its accumulators, the widened
// weights and one vector of x fit in 32 or in 16 registers.
struct TileShape {
  size_t rows;
  size_t cols;
};
// With 16 registers, the wide tile reads more weight rows at the same time, and the tall one widens
// a weight for more rows of x.
#if HWY_MAX_BYTES == 64 || HWY_ARCH_ARM_A64
constexpr TileShape kWideTile = {6, 4};
constexpr TileShape kTallTile = kWideTile;
#else
constexpr TileShape kWideTile = {4, 3};
constexpr TileShape kTallTile = {6, 2};
#endif
// Largest number of rows for which every row tile widens the weights in registers. With more rows,
// a panel that is widened once is as fast or faster (docs/benchmarks.md#kernels). With 16 registers
// tiles are small, and the same weights are widened more often.
constexpr size_t kMaxFewRows = (kLanes >= 16 ? 16 : 4) * kTallTile.rows;

// With up to so many rows, reading the weights may take longer than computing, and tasks have the
// size that memory wants. With more rows, no thread may be without a task.
constexpr size_t kReadingRows = 4 * kTallTile.rows;

// Few rows: the number of floats of a tile's x that are multiplied with one weight row after the
// other. With AVX-512 they stay in L1. With shorter vectors computing takes longer, so that x is
// read from L2 in the meantime, and weights are read in the order of memory.
constexpr size_t kSliceFloats = (kLanes >= 16 ? 6 : 48) << 10;

// Few rows: how many steps ahead of its use a weight is prefetched into L1. On a Zen 5, 16 steps
// are better if memory is slow, and 32 if it is fast (docs/benchmarks.md#kernels).
constexpr size_t kStepsAhead = kLanes >= 16 ? 24 : 32;

// The tile for a job of so many rows.
constexpr TileShape TileOf(size_t rows) {
  return rows > kWideTile.rows && rows <= kMaxFewRows ? kTallTile : kWideTile;
}

// The number of row tiles of such a job.
inline size_t NumTiles(size_t rows) { return CeilDiv(rows, TileOf(rows).rows); }

// Whether one accumulator, whose sums wait for each other, keeps pace with memory.
constexpr bool kOneRowKeepsPace = kLanes >= 16;

// Weights may start at any byte, because the tensors of a file need not be aligned to their
// elements.
template <class D>
HWY_INLINE hn::Vec<D> LoadBytes(D d, const uint8_t* at) {
#if HWY_TARGET == HWY_SCALAR
  hn::TFromD<D> lane;
  std::memcpy(&lane, at, sizeof(lane));
  return hn::LoadU(d, &lane);
#else
  const hn::Repartition<uint8_t, D> du8;
  return hn::BitCast(d, hn::LoadU(du8, at));
#endif
}

// Lanes 0, 2, … (1, 3, …) of a, then of b.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE Vec Evens(Vec a, Vec) { return a; }
HWY_INLINE Vec Odds(Vec, Vec b) { return b; }
#else
HWY_INLINE Vec Evens(Vec a, Vec b) { return hn::ConcatEven(kF32, b, a); }
HWY_INLINE Vec Odds(Vec a, Vec b) { return hn::ConcatOdd(kF32, b, a); }
#endif

// How weights are read, and how they are multiplied with x. Vector<i>(at) is vector i of the step
// whose first weight is `at`, kVectors vectors are a step, and x has as many. Add(w, x, sum) adds
// the products of two vectors.
struct Widened {
  static constexpr size_t kVectors = 2;
  // Row after row: the largest number of rows of x, and of their floats of packed x.
  static constexpr size_t kMaxRowAfterRow = 2;
  static constexpr size_t kMaxRowAfterRowFloats = 6 << 10;
  static HWY_INLINE Vec Add(Vec w, Vec x, Vec sum) {
#if HWY_TARGET == HWY_AVX2
    // Written as assembly, because GCC would load x anew for each product, which takes longer.
    asm("vfmadd231ps %2, %1, %0" : "+x"(sum.raw) : "x"(w.raw), "x"(x.raw));
    return sum;
#else
    return hn::MulAdd(w, x, sum);
#endif
  }
};

#if HWY_TARGET == HWY_AVX2
HWY_ALIGN constexpr uint32_t kUpperHalves[8] = {0xFFFF0000u, 0xFFFF0000u, 0xFFFF0000u, 0xFFFF0000u,
                                                0xFFFF0000u, 0xFFFF0000u, 0xFFFF0000u, 0xFFFF0000u};
#endif

struct Bf16Weights : Widened {
  static constexpr size_t kBytes = 2;
  template <size_t I>
  static HWY_INLINE Vec Vector(const uint8_t* at) {
    if constexpr (I == 0) return hn::BitCast(kF32, hn::ShiftLeft<16>(LoadBytes(U32(), at)));
#if HWY_TARGET == HWY_AVX2
    // Written as assembly, because the mask must not take the last register of a tile.
    Vec w = LoadBytes(kF32, at);
    asm("vpand %1, %0, %0" : "+x"(w.raw) : "m"(kUpperHalves));
    return w;
#else
    return hn::BitCast(kF32, hn::And(LoadBytes(U32(), at), hn::Set(U32(), 0xFFFF0000u)));
#endif
  }
};

struct F16Weights : Widened {
  static constexpr size_t kBytes = 2;
  template <size_t I>
  static HWY_INLINE Vec Vector(const uint8_t* at) {
    const hn::Rebind<hwy::float16_t, F32> f16;
    return hn::PromoteTo(kF32, LoadBytes(f16, at + I * kLanes * kBytes));
  }
};

struct F32Weights : Widened {
  static constexpr size_t kBytes = 4;
  template <size_t I>
  static HWY_INLINE Vec Vector(const uint8_t* at) {
    return LoadBytes(kF32, at + I * kLanes * kBytes);
  }
};

// A lane holds the bits of two BF16 numbers, in weights and in x.
struct Bf16Pairs {
  static constexpr size_t kBytes = 2;
  static constexpr size_t kVectors = 1;
  static constexpr size_t kMaxRowAfterRow = 8;
  static constexpr size_t kMaxRowAfterRowFloats = 8 << 10;
  template <size_t I>
  static HWY_INLINE Vec Vector(const uint8_t* at) {
    return LoadBytes(kF32, at);
  }
  static HWY_INLINE Vec Add(Vec w, Vec x, Vec sum) {
#if HWY_ARCH_X86_64 && HWY_MAX_BYTES == 64
    // Written as assembly, because the AVX-512 of the dispatch does not include AVX512-BF16.
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(w.raw), "v"(x.raw));
    return sum;
#else
    return hn::MulAdd(w, x, sum);  // never called: HasBf16Products() is false
#endif
  }
};

// Floats of packed x that a step of one row takes.
template <class W>
constexpr size_t kStepFloats = W::kVectors* kLanes;

// --- The order of the sum. Only these three functions change an accumulator.

// Adds one vector of a step: acc[m, n] += w[n] * x[m]. x has the shape [M, L].
template <class W, size_t M, size_t N>
HWY_INLINE void AddVectors(const Vec (&w)[N], const float* HWY_RESTRICT x, Vec (&acc)[M * N]) {
#pragma GCC unroll 8
  for (size_t m = 0; m < M; ++m) {
    const Vec xm = hn::Load(kF32, x + m * kLanes);
#pragma GCC unroll 8
    for (size_t n = 0; n < N; ++n) acc[m * N + n] = W::Add(w[n], xm, acc[m * N + n]);
  }
}

// Adds one level of the tree: the sums of adjacent lanes, a's in the lower half and b's in the
// upper.
HWY_INLINE Vec AddNeighbors(Vec a, Vec b) { return hn::Add(Evens(a, b), Odds(a, b)); }

// Adds the lanes of each of C <= L vectors: lane i of the result is the sum of acc[i].
template <size_t C>
HWY_INLINE Vec SumLanes(const Vec* acc) {
  Vec sums[C];
#pragma GCC unroll 16
  for (size_t i = 0; i < C; ++i) sums[i] = acc[i];
  size_t count = C;
#pragma GCC unroll 4
  for (size_t level = 1; level < kLanes; level *= 2) {
    const size_t next = (count + 1) / 2;
#pragma GCC unroll 8
    for (size_t i = 0; i < next; ++i) {
      sums[i] = AddNeighbors(sums[2 * i], sums[std::min(2 * i + 1, count - 1)]);
    }
    count = next;
  }
  return sums[0];
}

// --- Tiles

// A piece of k: steps [step, step + steps).
struct Depth {
  size_t step;
  size_t steps;
  bool first;  // whether it is the first piece of its product
  bool last;
};

// Rows [row, row + M) of x with weight rows [col, col + cols), cols <= N.
struct Tile {
  const MatMulArgs& args;
  size_t row;
  size_t col;
  size_t cols;
  float* carried;  // the accumulators between two pieces, [M * N, L]
};

// acc: [M, N]
template <size_t C>
HWY_INLINE void Begin(const Depth& depth, const Tile& tile, Vec (&acc)[C]) {
#pragma GCC unroll 24
  for (size_t i = 0; i < C; ++i) {
    acc[i] = depth.first ? hn::Zero(kF32) : hn::Load(kF32, tile.carried + i * kLanes);
  }
}

// Adds up the lanes of acc[0 … C), in groups of L.
template <size_t C>
HWY_INLINE void StoreSums(const Vec* acc, float* HWY_RESTRICT sums) {
  if constexpr (C > kLanes) {
    hn::Store(SumLanes<kLanes>(acc), kF32, sums);
    StoreSums<C - kLanes>(acc + kLanes, sums + kLanes);
  } else {
    hn::Store(SumLanes<C>(acc), kF32, sums);
  }
}

template <size_t N, size_t C>
HWY_INLINE void End(const Depth& depth, const Tile& tile, const Vec (&acc)[C]) {
  if (!depth.last) {
#pragma GCC unroll 24
    for (size_t i = 0; i < C; ++i) hn::Store(acc[i], kF32, tile.carried + i * kLanes);
    return;
  }
  HWY_ALIGN float sums[C + kLanes];
  StoreSums<C>(acc, sums);
  const MatMulArgs& args = tile.args;
  for (size_t m = 0; m < C / N; ++m) {
    float* out = args.out + (tile.row + m) * args.out_stride + tile.col;
    const float* row_sums = sums + m * N;
    if (tile.cols == N && args.bias == nullptr && !args.add_to_out) {
      std::memcpy(out, row_sums, N * sizeof(float));
      continue;
    }
    for (size_t n = 0; n < std::min(tile.cols, N); ++n) {
      float value = row_sums[n];
      if (args.bias != nullptr) value += args.bias[tile.col + n];
      out[n] = args.add_to_out ? out[n] + value : value;
    }
  }
}

// Calls f<R>() for R = rows, at most M.
template <size_t M, class F>
HWY_INLINE void WithTileRows(size_t rows, const F& f) {
  if constexpr (M > 1) {
    if (rows < M) return WithTileRows<M - 1>(rows, f);
  }
  f(std::integral_constant<size_t, M>());
}

// The weights of N weight rows, beginning at a step. Missing rows repeat the last row.
template <class W, size_t N>
struct Strip {
  const uint8_t* rows[N];

  HWY_INLINE Strip(const MatMulArgs& args, size_t col, size_t step) {
    for (size_t n = 0; n < N; ++n) {
      const size_t row = std::min(col + n, args.out_features - 1);
      rows[n] =
          static_cast<const uint8_t*>(args.w) + (row * args.in_features + step * kStep) * W::kBytes;
    }
  }

  // Points to a zero-padded copy of the product's last, partial step, because W may end where a
  // page ends.
  HWY_INLINE void MoveToPartialStep(size_t full_steps, size_t weights,
                                    uint8_t (&copy)[N][kStep * W::kBytes]) {
    for (size_t n = 0; n < N; ++n) {
      std::memset(copy[n], 0, sizeof(copy[n]));
      std::memcpy(copy[n], rows[n] + full_steps * kStep * W::kBytes, weights * W::kBytes);
      rows[n] = copy[n];
    }
  }
};

// --- Few rows

template <class W, size_t M, size_t N>
HWY_INLINE void AddStep(const uint8_t* const (&rows)[N], size_t offset, const float* HWY_RESTRICT x,
                        Vec (&acc)[M * N]) {
  Vec w[N];
#pragma GCC unroll 8
  for (size_t n = 0; n < N; ++n) w[n] = W::template Vector<0>(rows[n] + offset);
  AddVectors<W, M, N>(w, x, acc);
  if constexpr (W::kVectors == 2) {
#pragma GCC unroll 8
    for (size_t n = 0; n < N; ++n) w[n] = W::template Vector<1>(rows[n] + offset);
    AddVectors<W, M, N>(w, x + M * kLanes, acc);
  }
}

// The same for the last, partial step of the product.
template <class W, size_t M, size_t N>
HWY_INLINE void AddPartialStep(Strip<W, N> strip, size_t full_steps, size_t weights,
                               const float* HWY_RESTRICT x, Vec (&acc)[M * N]) {
  uint8_t copy[N][kStep * W::kBytes];
  strip.MoveToPartialStep(full_steps, weights, copy);
  AddStep<W, M, N>(strip.rows, 0, x, acc);
}

// Also prefetches rows [fetch_begin, fetch_end) of what is read next: of `strip` itself some steps
// ahead, and at its end, of `next`. Of several tiles that share the rows, each prefetches its rows
// of `next`.
template <class W, size_t M, size_t N>
HWY_NOINLINE void FewRowsTile(const Depth& depth, const Tile& tile, Strip<W, N> strip,
                              const float* HWY_RESTRICT x, const Strip<W, N>& next,
                              size_t fetch_begin, size_t fetch_end) {
  constexpr size_t kStepBytes = kStep * W::kBytes;
  const size_t partial = depth.last ? tile.args.in_features % kStep : 0;
  const size_t full_steps = depth.steps - (partial != 0 ? 1 : 0);
  const bool shares = fetch_end - fetch_begin < N;
  const size_t steps_ahead = shares ? full_steps : std::min(kStepsAhead, full_steps);
  Vec acc[M * N];
  Begin(depth, tile, acc);
  // Steps [begin, end) prefetch rows `from` as many steps ahead as `ahead` says.
  const auto add_steps = [&](const Strip<W, N>& from, size_t begin, size_t end,
                             ptrdiff_t ahead) HWY_ATTR {
    const ptrdiff_t bytes_ahead = ahead * static_cast<ptrdiff_t>(kStepBytes);
    for (size_t step = begin; step < end; ++step, x += M * kStepFloats<W>) {
      const size_t offset = step * kStepBytes;
      for (size_t n = fetch_begin; n < fetch_end; ++n) {
        __builtin_prefetch(from.rows[n] + offset + bytes_ahead, 0, kToL1);
      }
      AddStep<W, M, N>(strip.rows, offset, x, acc);
    }
  };
  const size_t middle = full_steps - steps_ahead;
  add_steps(strip, 0, middle, static_cast<ptrdiff_t>(steps_ahead));
  add_steps(next, middle, full_steps, -static_cast<ptrdiff_t>(middle));
  if (partial != 0) AddPartialStep<W, M, N>(strip, full_steps, partial, x, acc);
  End<N>(depth, tile, acc);
}

// A weight row with M rows of x.
template <class W, size_t M>
HWY_NOINLINE void RowTile(const Depth& depth, const Tile& tile, const Strip<W, 1>& row,
                          const float* HWY_RESTRICT x) {
  constexpr size_t kStepBytes = kStep * W::kBytes;
  const size_t partial = tile.args.in_features % kStep;
  const size_t full_steps = depth.steps - (partial != 0 ? 1 : 0);
  Vec acc[M];
  Begin(depth, tile, acc);
  // This is no pointer arithmetic, because the address may lie beyond the end of the matrix.
  uintptr_t ahead = reinterpret_cast<uintptr_t>(row.rows[0]) + kBytesAhead;
#pragma GCC unroll 4
  for (size_t step = 0; step < full_steps; ++step, x += M * kStepFloats<W>) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): it is only prefetched
    __builtin_prefetch(reinterpret_cast<const void*>(ahead), 0, kToL1);
    ahead += kStepBytes;
    AddStep<W, M, 1>(row.rows, step * kStepBytes, x, acc);
  }
  if (partial != 0) AddPartialStep<W, M, 1>(row, full_steps, partial, x, acc);
  End<1>(depth, tile, acc);
}

// One weight row after the other. Memory is read in the order of its addresses, and the last
// prefetches lie beyond the end of the matrix.
template <class W>
void RowAfterRow(const ProductJob& job, const float* packed_x, size_t col_begin, size_t col_end) {
  const MatMulArgs& args = *job.args;
  const size_t steps = CeilDiv(args.in_features, kStep);
  const size_t tiles = NumTiles(job.rows);
  const Depth depth{0, steps, true, true};
  for (size_t col = col_begin; col < col_end; ++col) {
    const Strip<W, 1> row(args, col, 0);
    for (size_t t = 0; t < tiles; ++t) {
      const Part part = PartOf(job.rows, tiles, t);
      const Tile tile{args, job.first_row + part.begin, col, 1, nullptr};
      const float* x = packed_x + part.begin * steps * kStepFloats<W>;
      WithTileRows<kWideTile.rows>(part.size,
                                   [&](auto m) HWY_ATTR { RowTile<W, m>(depth, tile, row, x); });
    }
  }
}

// A group of strips goes through one piece of k after the other. While all rows of x fit in a slice
// (kSliceFloats), each strip meets all of them at once. Otherwise one tile of x after the other
// meets all strips of the group, and the weights stay in L2 for the next tile.
template <class W, size_t kTileRows, size_t kTileCols>
void FewRows(const ProductJob& job, const float* packed_x, size_t col_begin, size_t col_end) {
  const MatMulArgs& args = *job.args;
  const size_t steps = CeilDiv(args.in_features, kStep);
  const size_t tiles = CeilDiv(job.rows, kTileRows);
  const bool x_fits = tiles == 1 || steps * kStepFloats<W> * job.rows <= kSliceFloats;
  const size_t tiles_at_once = x_fits ? tiles : 1;
  const size_t pieces =
      CeilDiv(steps * kStepFloats<W> * std::min(job.rows, kTileRows), kSliceFloats);
  constexpr size_t kTileSums = kTileRows * kTileCols * kLanes;
  constexpr size_t kGroupCols = kGroupStrips * kTileCols;
  float* carried = ThreadScratch().carried.Reserve(kGroupStrips * tiles * kTileSums);

  const auto compute_strip = [&](const Depth& k, size_t group, size_t col,
                                 size_t first_tile) HWY_ATTR {
    const size_t group_end = std::min(group + kGroupCols, col_end);
    const Strip<W, kTileCols> strip(args, col, k.step);
    // What is read next: the next strip, or with one tile at a time, the same strip of the next
    // piece or group. All tiles then share the time for it.
    const bool in_order = x_fits && col + kTileCols < group_end;
    const size_t next_group_col = x_fits ? group_end : col + kGroupCols;
    const Strip<W, kTileCols> next =
        in_order ? Strip<W, kTileCols>(args, col + kTileCols, k.step)
        : k.last ? Strip<W, kTileCols>(args, next_group_col, 0)
                 : Strip<W, kTileCols>(args, x_fits ? group : col, k.step + k.steps);
    // What follows the last group belongs to another task.
    const bool ends = !x_fits && k.last && next_group_col >= col_end;
    for (size_t t = first_tile; t < first_tile + tiles_at_once; ++t) {
      const Part part = PartOf(job.rows, tiles, t);
      const Part fetch = PartOf(ends ? 0 : kTileCols, tiles, t);
      const Tile tile{args, job.first_row + part.begin, col, std::min(kTileCols, col_end - col),
                      carried + ((col - group) / kTileCols * tiles + t) * kTileSums};
      const float* x = packed_x + (part.begin * steps + part.size * k.step) * kStepFloats<W>;
      WithTileRows<kTileRows>(part.size, [&](auto m) HWY_ATTR {
        FewRowsTile<W, m, kTileCols>(k, tile, strip, x, next, fetch.begin,
                                     fetch.begin + fetch.size);
      });
    }
  };
  for (size_t group = col_begin; group < col_end; group += kGroupCols) {
    const size_t group_end = std::min(group + kGroupCols, col_end);
    for (size_t piece = 0; piece < pieces; ++piece) {
      const Part k = PartOf(steps, pieces, piece);
      const Depth depth{k.begin, k.size, piece == 0, piece + 1 == pieces};
      for (size_t t = 0; t < tiles; t += tiles_at_once) {
        for (size_t col = group; col < group_end; col += kTileCols) {
          compute_strip(depth, group, col, t);
        }
      }
    }
  }
}

// --- Blocked

constexpr size_t kPanelCols = kWideTile.cols;

// panel [vector of a step][kPanelCols][L] of one strip.
template <class W>
HWY_NOINLINE void CopyStrip(const MatMulArgs& args, const Depth& depth, Strip<W, kPanelCols> strip,
                            float* HWY_RESTRICT panel) {
  const size_t partial = depth.last ? args.in_features % kStep : 0;
  const size_t full_steps = depth.steps - (partial != 0 ? 1 : 0);
  uint8_t copy[kPanelCols][kStep * W::kBytes];
  for (size_t step = 0; step < depth.steps; ++step, panel += kPanelCols * kStepFloats<W>) {
    size_t offset = step * kStep * W::kBytes;
    if (step == full_steps) {
      strip.MoveToPartialStep(full_steps, partial, copy);
      offset = 0;
    }
#pragma GCC unroll 8
    for (size_t n = 0; n < kPanelCols; ++n) {
      hn::Store(W::template Vector<0>(strip.rows[n] + offset), kF32, panel + n * kLanes);
      if constexpr (W::kVectors == 2) {
        hn::Store(W::template Vector<1>(strip.rows[n] + offset), kF32,
                  panel + (kPanelCols + n) * kLanes);
      }
    }
  }
}

template <class W, size_t M>
HWY_NOINLINE void PanelTile(const Depth& depth, const Tile& tile, const float* HWY_RESTRICT panel,
                            const float* HWY_RESTRICT x) {
  Vec acc[M * kPanelCols];
  Begin(depth, tile, acc);
  // This loop is unrolled, because counting would compete with the multiply-adds for their ports.
#pragma GCC unroll 4
  for (size_t vector = 0; vector < W::kVectors * depth.steps; ++vector) {
    Vec w[kPanelCols];
#pragma GCC unroll 8
    for (size_t n = 0; n < kPanelCols; ++n) w[n] = hn::Load(kF32, panel + n * kLanes);
    AddVectors<W, M, kPanelCols>(w, x, acc);
    panel += kPanelCols * kLanes;
    x += M * kLanes;
  }
  End<kPanelCols>(depth, tile, acc);
}

// Prefetches memory that is needed soon, a few cache lines at a time, so that reading keeps pace
// with computing: `rows` rows of `bytes`, `stride` apart, in `calls` calls of Step.
class Fetcher {
 public:
  HWY_INLINE Fetcher(const void* first, size_t rows, size_t bytes, size_t stride, size_t calls)
      : at_(reinterpret_cast<uintptr_t>(first)),
        lines_per_row_(CeilDiv(bytes, 64)),
        lines_left_in_row_(lines_per_row_),
        to_next_row_(stride - lines_per_row_ * 64),
        lines_left_(rows * lines_per_row_),
        lines_per_step_(CeilDiv(lines_left_, calls)) {}

  HWY_INLINE void Step() {
    const size_t lines = std::min(lines_per_step_, lines_left_);
    lines_left_ -= lines;
    for (size_t i = 0; i < lines; ++i) {
      // NOLINTNEXTLINE(performance-no-int-to-ptr): only a prefetch, of what may lie outside
      __builtin_prefetch(reinterpret_cast<const void*>(at_), 0, 2);
      at_ += 64;
      if (--lines_left_in_row_ == 0) {
        lines_left_in_row_ = lines_per_row_;
        at_ += to_next_row_;
      }
    }
  }

 private:
  uintptr_t at_;  // an address that may lie outside of the matrix, and so is no pointer
  size_t lines_per_row_;
  size_t lines_left_in_row_;
  size_t to_next_row_;
  size_t lines_left_;
  size_t lines_per_step_;
};

template <class W>
void Blocked(const ProductJob& job, const float* packed_x, size_t col_begin, size_t col_end) {
  const MatMulArgs& args = *job.args;
  const size_t steps = CeilDiv(args.in_features, kStep);
  const size_t tiles = NumTiles(job.rows);
  const size_t strips = CeilDiv(col_end - col_begin, kPanelCols);
  const size_t pieces = CeilDiv(steps * kStep, kPanelDepth);
  const size_t groups = CeilDiv(job.rows, kPanelXRows);  // groups of row tiles
  constexpr size_t kTileSums = kWideTile.rows * kPanelCols * kLanes;
  const size_t strip_floats = CeilDiv(steps, pieces) * kStepFloats<W> * kPanelCols;
  Scratch& scratch = ThreadScratch();
  float* panel = scratch.panel.Reserve(strips * strip_floats);
  float* carried = scratch.carried.Reserve(CeilDiv(tiles, groups) * strips * kTileSums);

  for (size_t g = 0; g < groups; ++g) {
    const Part group = PartOf(tiles, groups, g);
    for (size_t piece = 0; piece < pieces; ++piece) {
      const Part k = PartOf(steps, pieces, piece);
      const Depth depth{k.begin, k.size, piece == 0, piece + 1 == pieces};
      for (size_t s = 0; s < strips; ++s) {
        const Strip<W, kPanelCols> strip(args, col_begin + s * kPanelCols, k.begin);
        CopyStrip(args, depth, strip, panel + s * strip_floats);
      }
      // The next panel has the same weight rows, or the following ones after the last piece.
      const Part next_k = PartOf(steps, pieces, depth.last ? 0 : piece + 1);
      const size_t next_col = depth.last && g + 1 == groups ? col_end : col_begin;
      Fetcher weights(Strip<W, kPanelCols>(args, next_col, next_k.begin).rows[0],
                      std::min(col_end - col_begin, args.out_features - next_col),
                      next_k.size * kStep * W::kBytes, args.in_features * W::kBytes,
                      group.size * strips);
      for (size_t t = 0; t < group.size; ++t) {
        const auto x_of = [&](const Part& part) {
          return packed_x + (part.begin * steps + part.size * k.begin) * kStepFloats<W>;
        };
        const Part part = PartOf(job.rows, tiles, group.begin + t);
        const Part next_part = PartOf(job.rows, tiles, group.begin + (t + 1) % group.size);
        Fetcher next_x(x_of(next_part), 1, next_part.size * k.size * kStepFloats<W> * sizeof(float),
                       0, strips);
        for (size_t s = 0; s < strips; ++s) {
          next_x.Step();
          weights.Step();
          const size_t col = col_begin + s * kPanelCols;
          const Tile tile{args, job.first_row + part.begin, col,
                          std::min(kPanelCols, col_end - col),
                          carried + (t * strips + s) * kTileSums};
          WithTileRows<kWideTile.rows>(part.size, [&](auto m) HWY_ATTR {
            PanelTile<W, m>(depth, tile, panel + s * strip_floats, x_of(part));
          });
        }
      }
    }
  }
}

// --- x

// The forms of packed x that the head of this file describes.
enum class Packing { kHalves, kEvenOdd, kRounded };

Packing PackingOf(const MatMulArgs& args, bool rounds) {
  if (args.dtype != DType::kBF16) return Packing::kHalves;
  return rounds ? Packing::kRounded : Packing::kEvenOdd;
}

// Floats of packed x that a step of one row takes.
size_t StepFloats(Packing packing) {
  return packing == Packing::kRounded ? kStepFloats<Bf16Pairs> : kStep;
}

// Rounds to the nearest BF16 number, of two the one with an even last bit. The upper half of a lane
// is the number, and the lower half is of no use. A NaN stays one.
HWY_INLINE hn::Vec<U32> RoundToBf16(Vec value) {
  const auto bits = hn::BitCast(U32(), value);
  const auto last = hn::And(hn::ShiftRight<16>(bits), hn::Set(U32(), 1));
  const auto rounded = hn::Add(bits, hn::Add(last, hn::Set(U32(), 0x7FFF)));
  const auto quiet = hn::Or(bits, hn::Set(U32(), 0x00400000));
  return hn::IfThenElse(hn::RebindMask(U32(), hn::IsNaN(value)), quiet, rounded);
}

// Packs a step of one row. `stride` is the distance of its vectors.
HWY_INLINE void PackStep(Packing packing, Vec first, Vec second, size_t stride, float* to) {
  if (packing == Packing::kHalves) {
    hn::Store(first, kF32, to);
    hn::Store(second, kF32, to + stride);
    return;
  }
  const Vec even = Evens(first, second);
  const Vec odd = Odds(first, second);
  if (packing == Packing::kEvenOdd) {
    hn::Store(even, kF32, to);
    hn::Store(odd, kF32, to + stride);
    return;
  }
  const auto upper = hn::And(RoundToBf16(odd), hn::Set(U32(), 0xFFFF0000U));
  const auto pairs = hn::Or(hn::ShiftRight<16>(RoundToBf16(even)), upper);
  hn::Store(hn::BitCast(kF32, pairs), kF32, to);
}

// Packs row tile `tile` of the job's x as the head of this file describes.
void PackTile(const ProductJob& job, Packing packing, size_t tile, float* packed_x) {
  const MatMulArgs& args = *job.args;
  const Part part = PartOf(job.rows, NumTiles(job.rows), tile);
  const size_t steps = CeilDiv(args.in_features, kStep);
  const size_t step_floats = StepFloats(packing);
  for (size_t m = 0; m < part.size; ++m) {
    const float* from = args.x + (job.first_row + part.begin + m) * args.x_stride;
    float* to = packed_x + part.begin * steps * step_floats + m * kLanes;
    for (size_t k = 0; k < args.in_features; k += kStep, to += part.size * step_floats) {
      HWY_ALIGN float padded[kStep];
      const float* at = from + k;
      if (args.in_features - k < kStep) {
        std::fill(std::copy(at, from + args.in_features, padded), padded + kStep, 0.0F);
        at = padded;
      }
      PackStep(packing, hn::LoadU(kF32, at), hn::LoadU(kF32, at + kLanes), part.size * kLanes, to);
    }
  }
}

// --- The whole product

// Whether RowAfterRow is faster than FewRows: x stays in L1, and one weight row has enough to
// compute for the rows of x. Weights that must be widened take too long for more than two rows.
template <class W>
bool ReadsRowAfterRow(const ProductJob& job) {
  if (!kOneRowKeepsPace || ReadOrderOf(WeightBytes(*job.args)) != ReadOrder::kRowAfterRow) {
    return false;
  }
  if (job.rows == 1) return true;
  const size_t x_floats = job.rows * CeilDiv(job.args->in_features, kStep) * kStepFloats<W>;
  return job.rows <= W::kMaxRowAfterRow && x_floats <= W::kMaxRowAfterRowFloats &&
         x_floats * sizeof(float) <= L1Bytes() / 4 * 3;
}

template <class W>
void RunTask(const ProductJob& job, const float* packed_x, size_t col_begin, size_t col_end) {
  if (ReadsRowAfterRow<W>(job)) {
    RowAfterRow<W>(job, packed_x, col_begin, col_end);
  } else if (job.rows <= kWideTile.rows) {
    FewRows<W, kWideTile.rows, kWideTile.cols>(job, packed_x, col_begin, col_end);
  } else if (job.rows <= kMaxFewRows) {
    FewRows<W, kTallTile.rows, kTallTile.cols>(job, packed_x, col_begin, col_end);
  } else {
    Blocked<W>(job, packed_x, col_begin, col_end);
  }
}

// Cuts the weight rows of each job into tasks.
void CutTasks(std::span<ProductJob> jobs, int num_threads) {
  const size_t task_bytes = BytesPerTask(jobs, num_threads);
  for (ProductJob& job : jobs) {
    const size_t cols = TileOf(job.rows).cols;
    const size_t fair = CeilDiv(job.args->out_features, WantedTasks(num_threads) * cols) * cols;
    const size_t at_least_fair = std::max(fair, kPanelRows / 4) / cols * cols;
    const size_t strip_bytes = cols * job.args->in_features * SizeOf(job.args->dtype);
    job.rows_per_task = cols * CeilDiv(task_bytes, strip_bytes);
    if (job.rows > kMaxFewRows) {
      job.rows_per_task = std::min(at_least_fair, kPanelRows / cols * cols);
    } else if (job.rows > kReadingRows) {
      job.rows_per_task = std::min(job.rows_per_task, at_least_fair);
    }
  }
}

void PackX(const ProductJob& job, Packing packing, float* packed_x, ThreadPool& pool) {
  const auto pack = [&](int64_t tile) {
    PackTile(job, packing, static_cast<size_t>(tile), packed_x + job.packed_offset);
  };
  const auto tiles = static_cast<int64_t>(NumTiles(job.rows));
  if (job.rows * job.args->in_features >= kMinParallelPack) {
    pool.ParallelFor(tiles, pack);
  } else {
    for (int64_t tile = 0; tile < tiles; ++tile) pack(tile);
  }
}

void MatMulTarget(std::span<const MatMulArgs> products, ThreadPool& pool) {
  Scratch& scratch = ThreadScratch();
  std::vector<ProductJob>& jobs = scratch.jobs;
  const bool rounds = RoundsActivations();
  const auto same_packing = [&](const MatMulArgs& a, const MatMulArgs& b) {
    return PackingOf(a, rounds) == PackingOf(b, rounds);
  };
  const auto packed_floats = [&](const ProductJob& job) {
    return job.rows * CeilDiv(job.args->in_features, kStep) *
           StepFloats(PackingOf(*job.args, rounds));
  };
  for (size_t block = 0;; ++block) {
    const size_t packed = PlanBlock(products, block, same_packing, packed_floats, jobs);
    if (jobs.empty()) return;
    float* packed_x = scratch.packed_x.Reserve(packed);
    for (const ProductJob& job : jobs) {
      if (job.packs_x) PackX(job, PackingOf(*job.args, rounds), packed_x, pool);
    }
    CutTasks(jobs, pool.num_threads());
    RunTasks(jobs, pool, [&](const ProductJob& job, size_t begin, size_t end) {
      const float* x = packed_x + job.packed_offset;
      switch (job.args->dtype) {
        case DType::kF32:
          return RunTask<F32Weights>(job, x, begin, end);
        case DType::kBF16:
          return rounds ? RunTask<Bf16Pairs>(job, x, begin, end)
                        : RunTask<Bf16Weights>(job, x, begin, end);
        case DType::kF16:
          return RunTask<F16Weights>(job, x, begin, end);
      }
    });
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem {

HWY_EXPORT(MatMulTarget);

void MatMul(std::span<const MatMulArgs> products, ThreadPool& pool) {
  if (!UsesMatrixUnits() || RoundsActivations())
    return HWY_DYNAMIC_DISPATCH(MatMulTarget)(products, pool);
  const auto has_bf16 = [](const MatMulArgs& args) { return args.dtype == DType::kBF16; };
  if (std::all_of(products.begin(), products.end(), has_bf16)) return MatMulAmx(products, pool);
  std::vector<MatMulArgs> sorted(products.begin(), products.end());
  const auto others = std::stable_partition(sorted.begin(), sorted.end(), has_bf16);
  MatMulAmx({sorted.begin(), others}, pool);
  HWY_DYNAMIC_DISPATCH(MatMulTarget)({others, sorted.end()}, pool);
}

}  // namespace tandem
#endif  // HWY_ONCE
