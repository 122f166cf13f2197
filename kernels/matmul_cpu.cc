// The product on the CPU. Vector lanes run along k: lane i of an accumulator sums the terms of
// every L-th k (L lanes), in ascending order, and the lanes are then added in one tree. Both paths
// below keep to that for each element by itself, so its bits do not depend on which of them ran, on
// the tile it fell into or on its neighbours.
//
//   few rows  weights go from memory to registers once per group of up to 6 rows of x, four weight
//   rows at a time blocked   a panel of weights is widened to F32 in the L2 cache once and meets up
//   to 192 rows of x
//
// x is first laid out anew, zero-padded, in the order in which the kernels read it:
//   [row tile][half step][rows of the tile][L]   f32
// A step is 2L consecutive k. Its halves are k in [0, L) and [L, 2L) of it; for BF16 the even and
// the odd k, because 2L loaded weights are then widened by one shift and one AND.

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/matmul.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul_cpu.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.
#include "hwy/aligned_allocator.h"
#include "hwy/highway.h"

#ifndef TANDEM_KERNELS_MATMUL_CPU_ONCE
#define TANDEM_KERNELS_MATMUL_CPU_ONCE
namespace tandem {
namespace {

// Up to here a pass over the weights per group of rows is cheaper than widening panels.
constexpr size_t kMaxFewRows = 16;
// Blocked path: rows of x, weight rows and k of a panel. Together with the accumulators they fill
// half of a 2 MiB L2, and a row tile of x stays in L1.
constexpr size_t kBlockRows = 192;
constexpr size_t kPanelRows = 32;
constexpr size_t kPanelDepth = 1024;
// Weights that a task of the few-row path reads: enough to hide the cost of claiming it.
constexpr size_t kMinTaskBytes = 64 << 10;
constexpr size_t kMaxTaskBytes = 1 << 20;
// Packing less x than this is not worth waking a helper for.
constexpr size_t kMinParallelPack = 32 << 10;

// Grows, never shrinks: no allocation in steady state.
class ScratchFloats {
 public:
  float* Reserve(size_t count) {
    if (count > capacity_) {
      floats_ = hwy::AllocateAligned<float>(count);
      capacity_ = count;
    }
    return floats_.get();
  }

 private:
  hwy::AlignedFreeUniquePtr<float[]> floats_;
  size_t capacity_ = 0;
};

// A block of rows of one product, and how its weight rows are cut into tasks.
struct Job {
  const MatMulArgs* args;
  size_t first_row;
  size_t rows;
  size_t packed_offset;  // of x, in floats
  bool packs_x;          // false: an earlier product of the call has the same x
  size_t rows_per_task;  // weight rows
  int64_t first_task;
};

// Per thread: a caller's packed x, every thread's panel and accumulators.
struct Scratch {
  ScratchFloats packed_x;
  ScratchFloats panel;
  ScratchFloats sums;
  std::vector<Job> jobs;
};

Scratch& ThreadScratch() {
  thread_local Scratch scratch;
  return scratch;
}

size_t CeilDiv(size_t a, size_t b) { return (a + b - 1) / b; }

// Part `index` of `total` cut into `parts` parts whose sizes differ by one at most, larger ones
// first.
struct Part {
  size_t begin;
  size_t size;
};
Part PartOf(size_t total, size_t parts, size_t index) {
  const size_t small = total / parts;
  const size_t larger = total % parts;
  return {index * small + std::min(index, larger), small + (index < larger ? 1 : 0)};
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

// A register tile is kTileRows rows of x by kTileCols rows of W: accumulators, the widened weights
// and one vector of x fit in 32 or in 16 registers.
#if HWY_MAX_BYTES == 64 || HWY_ARCH_ARM_A64
constexpr size_t kTileRows = 6;
constexpr size_t kTileCols = 4;
#else
constexpr size_t kTileRows = 4;
constexpr size_t kTileCols = 3;
#endif

// Weights start anywhere: a file's tensors need not be aligned, even to their own elements.
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

// How a half step of weights becomes F32. `at` is the step's first weight.
struct Bf16Weights {
  static constexpr size_t kBytes = 2;
  static HWY_INLINE Vec First(const uint8_t* at) {
    return hn::BitCast(kF32, hn::ShiftLeft<16>(LoadBytes(U32(), at)));
  }
  static HWY_INLINE Vec Second(const uint8_t* at) {
    return hn::BitCast(kF32, hn::And(LoadBytes(U32(), at), hn::Set(U32(), 0xFFFF0000u)));
  }
};

struct F16Weights {
  static constexpr size_t kBytes = 2;
  static HWY_INLINE Vec First(const uint8_t* at) {
    return hn::PromoteTo(kF32, LoadBytes(hn::Rebind<hwy::float16_t, F32>(), at));
  }
  static HWY_INLINE Vec Second(const uint8_t* at) { return First(at + kLanes * kBytes); }
};

struct F32Weights {
  static constexpr size_t kBytes = 4;
  static HWY_INLINE Vec First(const uint8_t* at) { return LoadBytes(kF32, at); }
  static HWY_INLINE Vec Second(const uint8_t* at) { return First(at + kLanes * kBytes); }
};

// --- The order of the sum: these three are all that touches an accumulator.

// One half step: acc[m, n] += w[n] * x[m]. x [M, L].
template <size_t M>
HWY_INLINE void AddHalfStep(const Vec (&w)[kTileCols], const float* HWY_RESTRICT x,
                            Vec (&acc)[M * kTileCols]) {
#pragma GCC unroll 8
  for (size_t m = 0; m < M; ++m) {
    const Vec xm = hn::Load(kF32, x + m * kLanes);
#pragma GCC unroll 8
    for (size_t n = 0; n < kTileCols; ++n) {
      acc[m * kTileCols + n] = hn::MulAdd(w[n], xm, acc[m * kTileCols + n]);
    }
  }
}

// One level of the tree: sums of neighbouring lanes, a's in the lower half, b's in the upper.
HWY_INLINE Vec AddNeighbours(Vec a, Vec b) { return hn::Add(Evens(a, b), Odds(a, b)); }

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
      sums[i] = AddNeighbours(sums[2 * i], sums[std::min(2 * i + 1, count - 1)]);
    }
    count = next;
  }
  return sums[0];
}

// --- A finished tile

// Sums of acc[0 … C), in groups of L.
template <size_t C>
HWY_INLINE void StoreSums(const Vec* acc, float* HWY_RESTRICT sums) {
  if constexpr (C > kLanes) {
    hn::Store(SumLanes<kLanes>(acc), kF32, sums);
    StoreSums<C - kLanes>(acc + kLanes, sums + kLanes);
  } else {
    hn::Store(SumLanes<C>(acc), kF32, sums);
  }
}

template <size_t M>
HWY_INLINE void WriteTile(const MatMulArgs& args, size_t row, size_t col, size_t cols,
                          const Vec (&acc)[M * kTileCols]) {
  HWY_ALIGN float sums[M * kTileCols + kLanes];
  StoreSums<M * kTileCols>(acc, sums);
  for (size_t m = 0; m < M; ++m) {
    float* out = args.out + (row + m) * args.out_stride + col;
    for (size_t n = 0; n < std::min(cols, kTileCols); ++n) {
      float value = sums[m * kTileCols + n];
      if (args.bias != nullptr) value += args.bias[col + n];
      out[n] = args.add_to_out ? out[n] + value : value;
    }
  }
}

// --- Weight rows [col, col + cols), cols <= kTileCols. What is missing of a tile repeats its last
// row.

template <class W>
struct Strip {
  const uint8_t* rows[kTileCols];
  // The last, partial step, zero-padded: W may end where a page ends.
  HWY_ALIGN uint8_t tails[kTileCols][kStep * W::kBytes];

  // `step`: index of the partial step of `count` weights; count 0: there is none.
  HWY_INLINE Strip(const MatMulArgs& args, size_t col, size_t cols, size_t step, size_t count) {
    for (size_t n = 0; n < kTileCols; ++n) {
      rows[n] = static_cast<const uint8_t*>(args.w) +
                (col + std::min(n, cols - 1)) * args.in_features * W::kBytes;
      if (count == 0) continue;
      std::memcpy(tails[n], rows[n] + step * kStep * W::kBytes, count * W::kBytes);
      std::memset(tails[n] + count * W::kBytes, 0, (kStep - count) * W::kBytes);
    }
  }
};

// --- Few rows

// Cache lines to ask for ahead of time, some with each step.
struct Prefetch {
  const uint8_t* next;
  size_t lines_per_step;

  HWY_INLINE void Step() {
    for (size_t i = 0; i < lines_per_step; ++i, next += 64) __builtin_prefetch(next, 0, 2);
  }
};

template <class W, size_t M>
HWY_INLINE void AddStep(const uint8_t* const (&rows)[kTileCols], size_t offset,
                        const float* HWY_RESTRICT x, Vec (&acc)[M * kTileCols]) {
  Vec w[kTileCols];
#pragma GCC unroll 8
  for (size_t n = 0; n < kTileCols; ++n) w[n] = W::First(rows[n] + offset);
  AddHalfStep<M>(w, x, acc);
#pragma GCC unroll 8
  for (size_t n = 0; n < kTileCols; ++n) w[n] = W::Second(rows[n] + offset);
  AddHalfStep<M>(w, x + M * kLanes, acc);
}

// Returns how far it has prefetched.
template <class W, size_t M>
HWY_NOINLINE const uint8_t* FewRowsTile(const MatMulArgs& args, const Strip<W>& strip, size_t col,
                                        size_t cols, size_t row, const float* HWY_RESTRICT x,
                                        Prefetch prefetch) {
  const size_t steps = args.in_features / kStep;
  const uint8_t* rows[kTileCols];
  Vec acc[M * kTileCols];
#pragma GCC unroll 8
  for (size_t n = 0; n < kTileCols; ++n) rows[n] = strip.rows[n];
#pragma GCC unroll 24
  for (size_t i = 0; i < M * kTileCols; ++i) acc[i] = hn::Zero(kF32);
  for (size_t step = 0; step < steps; ++step) {
    prefetch.Step();
    AddStep<W, M>(rows, step * kStep * W::kBytes, x, acc);
    x += M * kStep;
  }
  if (args.in_features % kStep != 0) {
#pragma GCC unroll 8
    for (size_t n = 0; n < kTileCols; ++n) rows[n] = strip.tails[n];
    AddStep<W, M>(rows, 0, x, acc);
  }
  WriteTile<M>(args, row, col, cols, acc);
  return prefetch.next;
}

// Calls f<M>() for M = rows.
template <size_t M = kTileRows, class F>
HWY_INLINE void WithTileRows(size_t rows, const F& f) {
  if constexpr (M > 1) {
    if (rows < M) return WithTileRows<M - 1>(rows, f);
  }
  f(std::integral_constant<size_t, M>());
}

template <class W>
void FewRows(const Job& job, const float* packed_x, size_t col_begin, size_t col_end) {
  const MatMulArgs& args = *job.args;
  const size_t steps = args.in_features / kStep;
  const size_t tiles = CeilDiv(job.rows, kTileRows);
  const size_t packed_row = CeilDiv(args.in_features, kStep) * kStep;
  const size_t step_bytes = kTileCols * kStep * W::kBytes;
  for (size_t col = col_begin; col < col_end; col += kTileCols) {
    const size_t cols = std::min(kTileCols, col_end - col);
    const Strip<W> strip(args, col, cols, steps, args.in_features % kStep);
    // The strip after this one comes from memory while this one is computed with.
    const size_t ahead = col + kTileCols < col_end ? kTileCols * args.in_features * W::kBytes : 0;
    Prefetch prefetch{strip.rows[0] + ahead, CeilDiv(step_bytes, 64 * tiles)};
    for (size_t tile = 0; tile < tiles; ++tile) {
      const Part part = PartOf(job.rows, tiles, tile);
      const float* x = packed_x + part.begin * packed_row;
      WithTileRows(part.size, [&](auto m) HWY_ATTR {
        prefetch.next =
            FewRowsTile<W, m>(args, strip, col, cols, job.first_row + part.begin, x, prefetch);
      });
    }
  }
}

// --- Blocked

// panel [half step][kTileCols][L] of one strip, for steps [step, step + steps).
template <class W>
HWY_NOINLINE void WidenStrip(const MatMulArgs& args, const Strip<W>& strip, size_t step,
                             size_t steps, float* HWY_RESTRICT panel) {
  const size_t full_steps = args.in_features / kStep;
  for (size_t i = 0; i < steps; ++i, panel += kTileCols * kStep) {
    const bool full = step + i < full_steps;
#pragma GCC unroll 8
    for (size_t n = 0; n < kTileCols; ++n) {
      const uint8_t* at = full ? strip.rows[n] + (step + i) * kStep * W::kBytes : strip.tails[n];
      hn::Store(W::First(at), kF32, panel + n * kLanes);
      hn::Store(W::Second(at), kF32, panel + (kTileCols + n) * kLanes);
    }
  }
}

// One register tile through the panel's depth. `sums` carries the accumulators from one panel to
// the next.
template <size_t M>
HWY_NOINLINE void PanelTile(const float* HWY_RESTRICT panel, const float* HWY_RESTRICT x,
                            size_t half_steps, bool first, bool last, float* HWY_RESTRICT sums,
                            const MatMulArgs& args, size_t row, size_t col, size_t cols) {
  Vec acc[M * kTileCols];
#pragma GCC unroll 24
  for (size_t i = 0; i < M * kTileCols; ++i) {
    acc[i] = first ? hn::Zero(kF32) : hn::Load(kF32, sums + i * kLanes);
  }
  for (size_t i = 0; i < half_steps; ++i) {
    Vec w[kTileCols];
#pragma GCC unroll 8
    for (size_t n = 0; n < kTileCols; ++n) w[n] = hn::Load(kF32, panel + n * kLanes);
    AddHalfStep<M>(w, x, acc);
    panel += kTileCols * kLanes;
    x += M * kLanes;
  }
  if (last) {
    WriteTile<M>(args, row, col, cols, acc);
  } else {
#pragma GCC unroll 24
    for (size_t i = 0; i < M * kTileCols; ++i) hn::Store(acc[i], kF32, sums + i * kLanes);
  }
}

template <class W>
void Blocked(const Job& job, const float* packed_x, size_t col_begin, size_t col_end) {
  const MatMulArgs& args = *job.args;
  const size_t full_steps = args.in_features / kStep;
  const size_t steps = CeilDiv(args.in_features, kStep);
  const size_t tiles = CeilDiv(job.rows, kTileRows);
  const size_t strips = CeilDiv(col_end - col_begin, kTileCols);
  constexpr size_t kPanelSteps = kPanelDepth / kStep;
  constexpr size_t kTileSums = kTileRows * kTileCols * kLanes;
  const size_t strip_floats = std::min(steps, kPanelSteps) * kStep * kTileCols;
  Scratch& scratch = ThreadScratch();
  float* panel = scratch.panel.Reserve(strips * strip_floats);
  float* sums = scratch.sums.Reserve(steps > kPanelSteps ? tiles * strips * kTileSums : 1);

  for (size_t step = 0; step < steps; step += kPanelSteps) {
    const size_t depth = std::min(kPanelSteps, steps - step);
    const bool first = step == 0;
    const bool last = step + depth == steps;
    for (size_t s = 0; s < strips; ++s) {
      const size_t col = col_begin + s * kTileCols;
      const Strip<W> strip(args, col, std::min(kTileCols, col_end - col), full_steps,
                           last ? args.in_features % kStep : 0);
      WidenStrip(args, strip, step, depth, panel + s * strip_floats);
    }
    for (size_t tile = 0; tile < tiles; ++tile) {
      const Part part = PartOf(job.rows, tiles, tile);
      const float* x = packed_x + part.begin * steps * kStep + part.size * step * kStep;
      for (size_t s = 0; s < strips; ++s) {
        const size_t col = col_begin + s * kTileCols;
        WithTileRows(part.size, [&](auto m) HWY_ATTR {
          PanelTile<m>(panel + s * strip_floats, x, 2 * depth, first, last,
                       sums + (tile * strips + s) * kTileSums, args, job.first_row + part.begin,
                       col, std::min(kTileCols, col_end - col));
        });
      }
    }
  }
}

// --- x

// Lays row tile `tile` of the job's x out as the head of this file says.
void PackTile(const Job& job, size_t tile, float* packed_x) {
  const MatMulArgs& args = *job.args;
  const Part part = PartOf(job.rows, CeilDiv(job.rows, kTileRows), tile);
  const size_t steps = CeilDiv(args.in_features, kStep);
  const bool even_odd = args.dtype == DType::kBF16;
  for (size_t m = 0; m < part.size; ++m) {
    const float* from = args.x + (job.first_row + part.begin + m) * args.x_stride;
    float* to = packed_x + part.begin * steps * kStep + m * kLanes;
    for (size_t k = 0; k < args.in_features; k += kStep, to += part.size * kStep) {
      HWY_ALIGN float padded[kStep];
      const float* at = from + k;
      if (args.in_features - k < kStep) {
        std::fill(std::copy(at, from + args.in_features, padded), padded + kStep, 0.0F);
        at = padded;
      }
      Vec first = hn::LoadU(kF32, at);
      Vec second = hn::LoadU(kF32, at + kLanes);
      if (even_odd) {
        const Vec even = Evens(first, second);
        second = Odds(first, second);
        first = even;
      }
      hn::Store(first, kF32, to);
      hn::Store(second, kF32, to + part.size * kLanes);
    }
  }
}

// --- All of it

template <class W>
void RunTask(const Job& job, const float* packed_x, size_t col_begin, size_t col_end) {
  if (job.rows <= kMaxFewRows) {
    FewRows<W>(job, packed_x, col_begin, col_end);
  } else {
    Blocked<W>(job, packed_x, col_begin, col_end);
  }
}

// Fills `jobs` with row block `block` of every product that has one; returns the number of floats
// of packed x.
size_t PlanBlock(std::span<const MatMulArgs> products, size_t block, int num_threads,
                 std::vector<Job>& jobs) {
  jobs.clear();
  size_t packed = 0;
  size_t bytes = 0;
  for (const MatMulArgs& args : products) {
    const size_t blocks = CeilDiv(args.rows, kBlockRows);
    if (block >= blocks || args.out_features == 0) continue;
    const Part part = PartOf(args.rows, blocks, block);
    const auto same_x = std::find_if(jobs.begin(), jobs.end(), [&](const Job& job) {
      return job.args->x == args.x && job.args->x_stride == args.x_stride &&
             job.args->in_features == args.in_features && job.rows == part.size &&
             job.first_row == part.begin &&
             (job.args->dtype == DType::kBF16) == (args.dtype == DType::kBF16);
    });
    const bool packs_x = same_x == jobs.end();
    jobs.push_back({.args = &args,
                    .first_row = part.begin,
                    .rows = part.size,
                    .packed_offset = packs_x ? packed : same_x->packed_offset,
                    .packs_x = packs_x,
                    .rows_per_task = kPanelRows / kTileCols * kTileCols,
                    .first_task = 0});
    if (packs_x) packed += part.size * CeilDiv(args.in_features, kStep) * kStep;
    bytes += args.out_features * args.in_features * SizeOf(args.dtype);
  }
  const size_t task_bytes =
      std::clamp(bytes / (16 * static_cast<size_t>(num_threads)), kMinTaskBytes, kMaxTaskBytes);
  for (Job& job : jobs) {
    if (job.rows > kMaxFewRows) continue;
    const size_t strip_bytes = kTileCols * job.args->in_features * SizeOf(job.args->dtype);
    job.rows_per_task = kTileCols * CeilDiv(task_bytes, strip_bytes);
  }
  return packed;
}

void MatMulTarget(std::span<const MatMulArgs> products, ThreadPool& pool) {
  Scratch& scratch = ThreadScratch();
  std::vector<Job>& jobs = scratch.jobs;
  for (size_t block = 0;; ++block) {
    const size_t packed = PlanBlock(products, block, pool.num_threads(), jobs);
    if (jobs.empty()) return;
    float* packed_x = scratch.packed_x.Reserve(packed);
    int64_t num_tasks = 0;
    for (Job& job : jobs) {
      job.first_task = num_tasks;
      num_tasks += static_cast<int64_t>(CeilDiv(job.args->out_features, job.rows_per_task));
      if (!job.packs_x) continue;
      const auto pack = [&](int64_t tile) {
        PackTile(job, static_cast<size_t>(tile), packed_x + job.packed_offset);
      };
      const auto tiles = static_cast<int64_t>(CeilDiv(job.rows, kTileRows));
      if (job.rows * job.args->in_features >= kMinParallelPack) {
        pool.ParallelFor(tiles, pack);
      } else {
        for (int64_t tile = 0; tile < tiles; ++tile) pack(tile);
      }
    }
    pool.ParallelFor(num_tasks, [&](int64_t task) {
      const auto after =
          std::upper_bound(jobs.begin(), jobs.end(), task,
                           [](int64_t t, const Job& job) { return t < job.first_task; });
      const Job& job = *(after - 1);
      const size_t begin = static_cast<size_t>(task - job.first_task) * job.rows_per_task;
      const size_t end = std::min(begin + job.rows_per_task, job.args->out_features);
      const float* x = packed_x + job.packed_offset;
      switch (job.args->dtype) {
        case DType::kF32:
          return RunTask<F32Weights>(job, x, begin, end);
        case DType::kBF16:
          return RunTask<Bf16Weights>(job, x, begin, end);
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
  HWY_DYNAMIC_DISPATCH(MatMulTarget)(products, pool);
}

}  // namespace tandem
#endif  // HWY_ONCE
